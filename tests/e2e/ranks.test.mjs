// golden/needle-5m over HTTP on layouts of many ranks, each rank a process of its own: the reference's tokens. A few
// lengths of each here; scripts/test --full=needle asks all of them.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { Server, shared } from './server.mjs';

const path = resolve(shared, 'golden/needle-5m/cases.json');
const skip = existsSync(path) ? false : `${path} is not here`;
const endOfText = 5;

// One prompt of about each length.
function some(cases, lengths) {
  return lengths.map((n) => cases.find((c) => Math.abs(c.prompt_tokens - n) < n / 10));
}

const layouts = [
  { args: ['--ranks', '2'], ranks: 2, lengths: [150, 945, 3940] },
  { args: ['--ranks', '3'], ranks: 3, lengths: [150, 945, 3940] },
  { args: ['--layout', 'tp=2'], ranks: 2, lengths: [150, 3940] },
  { args: ['--layout', 'tp=4'], ranks: 4, lengths: [150, 945] }, // of 2 KV heads
  { args: ['--ranks', '2', '--kv', 'replicated'], ranks: 2, lengths: [150, 3940] },
];

for (const { args, ranks, lengths } of layouts) {
  test(`needles on ${args.join(' ')}`, { skip, timeout: 600_000 }, async () => {
    const cases = some(JSON.parse(readFileSync(path, 'utf8')), lengths);
    const server = await Server.start([...args, '--threads', '1', '--comm-timeout', '60']);
    try {
      const { ranks: states } = await server.state();
      assert.equal(states.length, ranks);
      assert.equal(new Set(states.map((r) => r.pid)).size, ranks, 'each rank is a process of its own');
      for (const c of cases) {
        const { status, json, text } = await server.post('/v1/chat/completions', {
          messages: c.messages, max_tokens: c.output_ids.length, return_token_ids: true,
        });
        assert.equal(status, 200, text);
        assert.equal(json.usage.prompt_tokens, c.prompt_tokens);
        assert.deepEqual(json.choices[0].token_ids, c.output_ids.filter((id) => id !== endOfText),
          `${c.prompt_tokens} tokens`);
        assert.equal(json.choices[0].message.content, c.output);
      }
    } finally {
      assert.ok(await server.stop(), 'the server ends on SIGTERM');
    }
  });
}
