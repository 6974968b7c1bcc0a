// Allocate one phase of a kernel over gRPC, then have the result audited.
//
//   node client.mjs ADDR FILE.mir [--target=gfx942] [--phase=sgpr|vgpr] [--out=FILE.mir] [--seconds=120]
//
// ADDR is HOST:PORT or unix:/PATH. Ends with 0 if both verdicts are PROVED, with 1 if not, with 2 on an error.
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { call, complain, connect, load } from './service.mjs';

const USAGE = 'usage: node client.mjs ADDR FILE.mir [--target=gfx942] [--phase=sgpr|vgpr] [--out=FILE.mir] [--seconds=120]';

function commandLine() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      target: { type: 'string', default: '' },
      phase: { type: 'string', default: 'sgpr' },
      out: { type: 'string' },
      seconds: { type: 'string', default: '120' },
    },
  });
  if (positionals.length !== 2 || !['sgpr', 'vgpr'].includes(values.phase) || !(Number(values.seconds) > 0)) {
    throw new Error(USAGE);
  }
  return { address: positionals[0], file: positionals[1], ...values, seconds: Number(values.seconds) };
}

function show(name, verdict) {
  for (const { rule, message } of verdict?.findings ?? []) console.log(`  ${name}: ${rule}: ${message}`);
}

async function main() {
  const given = commandLine();
  const text = readFileSync(given.file);
  const { AllocationService, AuditService } = load();
  const allocation = connect(AllocationService, given.address);
  const audit = connect(AuditService, given.address);

  const { versions, targets, limits } = await call(allocation, 'GetCapabilities', {}, given.seconds);
  console.log(`server: verilocc ${versions.verilocc}, ${versions.solver}, ${limits.workers} workers, for ${targets.join(' ')}`);

  const phase = `PHASE_${given.phase.toUpperCase()}`;
  const mir = { text, target: given.target, phase, name: basename(given.file) };
  const answer = await call(allocation, 'Allocate', { mir, returnMir: true }, given.seconds);
  for (const { function: name, outcome, assignments, allocator, attempts, reason } of answer.functions) {
    const tries = `${attempts.length} ${attempts.length === 1 ? 'attempt' : 'attempts'}`;
    console.log(`${name}: ${outcome.replace('OUTCOME_', '')}: ${
      reason || `${assignments.length} registers assigned by ${allocator}, ${tries}`}`);
    if (reason) show(name, attempts.at(-1)?.audit ?? attempts.at(-1)?.proof);
  }
  const texts = { before: text, after: answer.mir, target: given.target, afterName: `${mir.name} after ${given.phase}` };
  const audited = await call(audit, 'Audit', texts, given.seconds);
  console.log(`audit: ${audited.outcome.replace('OUTCOME_', '')}`);
  for (const { function: name, verdict } of audited.functions) show(name, verdict);
  for (const note of audited.notes) console.log(`  ${note}`);

  const proved = [...answer.functions, audited].every(({ outcome }) => outcome === 'OUTCOME_PROVED');
  if (proved && given.out !== undefined) writeFileSync(given.out, answer.mir);
  return proved ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  complain(error);
  process.exitCode = 2;
}
