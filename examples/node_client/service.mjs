// What every client of the service needs, from its .proto files alone: the stubs, and the reasons of errors.
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

export const LOADING = { longs: Number, enums: String, defaults: true, oneofs: true };
const PROTO = fileURLToPath(new URL('../../proto', import.meta.url));

// Field numbers of google/rpc/status.proto and google/rpc/error_details.proto, as far as the service uses them.
const field = (type, id, rule) => ({ type, id, ...(rule && { rule }) });
const RPC = protoLoader.fromJSON({ nested: {
  Any: { fields: { typeUrl: field('string', 1), value: field('bytes', 2) } },
  Status: { fields: { code: field('int32', 1), message: field('string', 2), details: field('Any', 3, 'repeated') } },
  ErrorInfo: { fields: { reason: field('string', 1), domain: field('string', 2) } },
  RetryInfo: { fields: { retryDelay: field('Duration', 1) } },
  Duration: { fields: { seconds: field('int64', 1), nanos: field('int32', 2) } },
} }, LOADING);

/** The constructors of verilocc.v1: AllocationService and AuditService. */
export function load() {
  const files = ['verilocc/v1/allocation_service.proto', 'verilocc/v1/audit_service.proto'];
  return grpc.loadPackageDefinition(protoLoader.loadSync(files, { ...LOADING, includeDirs: [PROTO] })).verilocc.v1;
}

/** A client of one service; messages have no limit but the server's (grpc-js takes 4 MiB of its own accord). */
export function connect(Service, address) {
  return new Service(address, grpc.credentials.createInsecure(), { 'grpc.max_receive_message_length': -1 });
}

/** One call as a promise; an overloaded server is asked again when it says, as long as there is time. */
export async function call(client, method, request, seconds) {
  const deadline = Date.now() + 1000 * seconds;
  for (;;) {
    try {
      return await new Promise((resolve, reject) => {
        client[method](request, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
      });
    } catch (error) {
      const { retryMilliseconds } = details(error);
      if (retryMilliseconds === undefined || Date.now() + retryMilliseconds > deadline) throw error;
      await sleep(retryMilliseconds);
    }
  }
}

/** What an error says beyond its code: { reason, domain, retryMilliseconds }, each undefined where it is not said. */
export function details(error) {
  const [packed] = error.metadata?.get('grpc-status-details-bin') ?? [];
  const found = {};
  for (const { typeUrl, value } of packed ? RPC.Status.deserialize(packed).details : []) {
    const type = typeUrl.split('.').at(-1);
    if (type === 'ErrorInfo') {
      const { reason, domain } = RPC.ErrorInfo.deserialize(value);
      Object.assign(found, { reason, domain });
    } else if (type === 'RetryInfo') {
      const { seconds, nanos } = RPC.RetryInfo.deserialize(value).retryDelay;
      found.retryMilliseconds = 1000 * seconds + nanos / 1e6;
    }
  }
  return found;
}

/** Print what went wrong, for people: the code, the reason, the sentence. */
export function complain(error) {
  const code = grpc.status[error.code];
  const { reason } = details(error);
  console.error(code === undefined ? error.message : `error: ${reason ? `${code}, ${reason}` : code}: ${error.details}`);
}
