// What `lariat plan` predicts for a rank is what the rank holds: resident bytes above an idle worker's, within 5 %.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Server, eventually, shared } from './server.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const binary = process.env.LARIAT_BIN ?? resolve(root, 'build/release/bin/lariat');
const tiny = resolve(shared, 'golden/llama-gqa');

const planned = (model, args) =>
  JSON.parse(execFileSync(binary, ['plan', model, '--json', ...args], { timeout: 60_000 })).ranks[0].total_bytes;

// Resident bytes of rank 0 after `ask` was answered, as its heartbeat says them.
async function resident(model, args, ask) {
  const server = await Server.start(args, { model });
  try {
    if (ask) assert.equal((await server.post('/v1/completions', ask)).status, 200);
    const before = Date.now();
    return await eventually(
      10_000,
      async () => {
        const rank = (await (await fetch(`${server.url}/v1/lariat/state`)).json()).ranks[0];
        // A beat that was sent after the answer.
        return Date.now() - rank.heartbeat_age_ms > before ? rank.rss_bytes : 0;
      },
      'a heartbeat',
    );
  } finally {
    await server.stop();
  }
}

test('a rank holds what plan predicts', { timeout: 240_000 }, async (t) => {
  if (!existsSync(tiny)) return t.skip(`${tiny} is not here`);
  const small = ['--kv-memory', '1M', '--context', '256'];
  const large = ['--kv-memory', '128M', '--context', '12288'];
  // The prompt fills passes, scratch and most of the pool, so that nothing is left to be taken later.
  const prompt = Array.from({ length: 12000 }, (_, i) => 7 + ((i * 7919) % 1400));
  const idle = await resident(tiny, small);
  const busy = await resident('needle-5m', large, { prompt, max_tokens: 4, ignore_eos: true });
  const above = busy - (idle - planned(tiny, small));
  const predicted = planned('needle-5m', large);
  const error = Math.abs(above - predicted) / predicted;
  assert.ok(error <= 0.05, `predicted ${predicted}, holds ${above}: ${(100 * error).toFixed(1)} %`);
});

test('every rank settles the pages that plan says, whatever its share', { timeout: 120_000 }, async () => {
  for (const shares of ['3,1', '1,3']) {
    const args = ['--ranks', '2', '--rank-shares', shares, '--threads', '1', '--context', '8192'];
    const plan = JSON.parse(execFileSync(binary, ['plan', 'needle-5m', '--json', ...args], { timeout: 60_000 }));
    const server = await Server.start(args);
    try {
      const state = await (await fetch(`${server.url}/v1/lariat/state`)).json();
      assert.equal(state.kv_pages_total, plan.pages_total, `shares ${shares}`);
    } finally {
      await server.stop();
    }
  }
});
