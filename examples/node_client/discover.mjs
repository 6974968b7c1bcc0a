// What a server offers, from its reflection service alone: services, methods, and the answer of GetCapabilities.
//
//   node discover.mjs ADDR
//
// No file of proto/ is read: the server sends its descriptors. Ends with 2 on an error.
import { createRequire } from 'node:module';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { call, complain, connect, LOADING } from './service.mjs';

const REFLECTION = createRequire(import.meta.url)
  .resolve('@grpc/reflection/build/proto/grpc/reflection/v1alpha/reflection.proto');

// A file's descriptor, as far as it is needed to find the files it imports; and a set of them, left as they came.
const DESCRIPTORS = protoLoader.fromJSON({ nested: {
  File: { fields: { name: { type: 'string', id: 1 }, dependency: { rule: 'repeated', type: 'string', id: 3 } } },
  FileSet: { fields: { file: { rule: 'repeated', type: 'bytes', id: 1 } } },
} }, LOADING);

/** Questions to the reflection service over one stream, answered in order. */
class Reflection {
  #waiting = [];
  #stream;

  constructor(address) {
    const { ServerReflection } = grpc.loadPackageDefinition(protoLoader.loadSync(REFLECTION, LOADING))
      .grpc.reflection.v1alpha;
    this.#stream = connect(ServerReflection, address).ServerReflectionInfo({ deadline: Date.now() + 30_000 });
    this.#stream.on('data', (answer) => {
      const { resolve, reject } = this.#waiting.shift();
      const { errorResponse } = answer;
      if (!errorResponse) resolve(answer);
      else reject(Object.assign(new Error(), { code: errorResponse.errorCode, details: errorResponse.errorMessage }));
    });
    this.#stream.on('error', (error) => this.#waiting.splice(0).forEach(({ reject }) => reject(error)));
  }

  ask(question) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#stream.write(question);
    });
  }

  end() {
    this.#stream.end();
  }

  async services() {
    const { listServicesResponse } = await this.ask({ listServices: '' });
    return listServicesResponse.service.map(({ name }) => name);
  }

  /** Every file that the services need, as descriptors by file name. */
  async files(services) {
    const files = new Map();
    const ask = async (question) => {
      const wanted = [];
      for (const bytes of (await this.ask(question)).fileDescriptorResponse.fileDescriptorProto) {
        const { name, dependency } = DESCRIPTORS.File.deserialize(bytes);
        files.set(name, bytes);
        wanted.push(...dependency);
      }
      for (const name of wanted) if (!files.has(name)) await ask({ fileByFilename: name });
    };
    for (const name of services) await ask({ fileContainingSymbol: name });
    return files;
  }
}

async function main() {
  if (process.argv.length !== 3) throw new Error('usage: node discover.mjs ADDR');
  const [, , address] = process.argv;
  const reflection = new Reflection(address);
  const services = await reflection.services();
  const files = await reflection.files(services);
  reflection.end();

  const set = DESCRIPTORS.FileSet.serialize({ file: [...files.values()] });
  const definitions = protoLoader.loadFileDescriptorSetFromBuffer(set, LOADING);
  for (const service of services) {
    console.log(service);
    for (const [name, { requestStream, requestType, responseStream, responseType }] of Object.entries(definitions[service])) {
      const from = `${requestStream ? 'stream ' : ''}${requestType.type.name}`;
      const to = `${responseStream ? 'stream ' : ''}${responseType.type.name}`;
      console.log(`  ${name}(${from}) -> ${to}`);
    }
  }
  const Allocation = grpc.makeGenericClientConstructor(definitions['verilocc.v1.AllocationService'], 'AllocationService');
  console.log(JSON.stringify(await call(connect(Allocation, address), 'GetCapabilities', {}, 30), null, 2));
}

try {
  await main();
} catch (error) {
  complain(error);
  process.exitCode = 2;
}
