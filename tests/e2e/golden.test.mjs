// golden/needle-5m over HTTP with `messages`: greedy outputs are those of the reference, token by token.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { full, Server, shared } from './server.mjs';

const path = resolve(shared, 'golden/needle-5m/cases.json');
const skip = existsSync(path) ? false : `${path} is not here`;
const tokensMax = full ? Infinity : 16_384;
const endOfText = 5;

let server;
before(async () => {
  if (!skip) server = await Server.start();
});
after(async () => {
  assert.ok(!server || (await server.stop()), 'the server ends on SIGTERM');
});

const cases = skip ? [] : JSON.parse(readFileSync(path, 'utf8'));
for (const [i, c] of cases.entries()) {
  if (c.prompt_tokens > tokensMax) continue;
  test(`case ${i} of ${c.prompt_tokens} tokens`, { timeout: 3_600_000 }, async () => {
    const fields = { messages: c.messages, max_tokens: c.output_ids.length, return_token_ids: true };
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST', body: JSON.stringify(fields), signal: AbortSignal.timeout(3_600_000),
    });
    assert.equal(response.status, 200);
    const answer = await response.json();
    assert.equal(answer.usage.prompt_tokens, c.prompt_tokens);
    assert.deepEqual(answer.choices[0].token_ids, c.output_ids.filter((id) => id !== endOfText));
    assert.equal(answer.choices[0].message.content, c.output);
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.usage.completion_tokens, c.output_ids.length);
  });
}
test('the golden cases are here', { skip }, () => assert.ok(cases.length > 20));
