// What the official client makes of each status and of an error in the middle of a stream; 400 and 404 are in
// client.test.mjs.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Server, eventually } from './server.mjs';

const key = 'a-key-of-the-tests';
const model = 'needle-5m';
const messages = [{ role: 'user', content: 'The pass key for thin ship is 76989.\nWhat is the pass key for thin ship?' }];
const endless = { model, messages, max_tokens: 100_000, ignore_eos: true };
let dir, server, client;

const clientOf = (s, options = {}) =>
  new OpenAI({ apiKey: key, baseURL: `${s.url}/v1`, maxRetries: 0, timeout: 60_000, ...options });
const ask = (fields = {}, c = client, options = undefined) =>
  c.chat.completions.create({ model, messages, max_tokens: 4, ...fields }, options);

before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'lariat-e2e-'));
  writeFileSync(join(dir, 'keys'), `${key}\n`, { mode: 0o600 });
  server = await Server.start(['--api-key-file', join(dir, 'keys'), '--max-batch', '1', '--max-restarts', '0']);
  client = clientOf(server);
});
after(async () => {
  rmSync(dir, { recursive: true, force: true });
  assert.ok(!server || (await server.stop()), 'the server ends on SIGTERM');
});

const is = (type, status, code) => (e) => {
  assert.ok(e instanceof type, `${e}`);
  assert.equal(e.status, status, `${e}`);
  assert.equal(e.code, code);
  assert.equal(typeof e.type, 'string');
  assert.ok(e.message.length > 5);
  return true;
};

const health = async () => (await server.get('/health')).status === 200;

test('401: a wrong key', async () => {
  const stranger = clientOf(server, { apiKey: 'another' });
  for (const stream of [false, true]) {
    await assert.rejects(ask({ stream }, stranger), is(OpenAI.AuthenticationError, 401, 'invalid_api_key'));
  }
  assert.equal((await ask()).choices.length, 1);
});

test('413: a body beyond 16 MiB', async () => {
  const content = 'x'.repeat(17 * 1024 * 1024);
  await assert.rejects(ask({ messages: [{ role: 'user', content }] }), is(OpenAI.APIError, 413, 'body_too_large'));
});

test('429: a full queue, until there is room again', async () => {
  // A batch of one and 256 waiting rows: two requests of 128 choices leave room for one row.
  const streams = [];
  for (let i = 0; i < 2; ++i) streams.push(await client.chat.completions.create({ ...endless, n: 128, stream: true }));
  for (const stream of [false, true]) {
    await assert.rejects(ask({ n: 2, stream }), (e) => {
      assert.equal(e.headers.get('retry-after'), '1');
      return is(OpenAI.RateLimitError, 429, 'queue_full')(e);
    });
  }
  // The client waits as told and asks again; meanwhile the others go away.
  const patient = ask({ n: 2 }, client, { maxRetries: 10 });
  for (const stream of streams) stream.controller.abort();
  assert.equal((await patient).choices.length, 2);
});

test('500, an error in mid-stream, then 503: the rank is lost with no restart left', async () => {
  const auth = { headers: { authorization: `Bearer ${key}` }, signal: AbortSignal.timeout(30_000) };
  const state = async () => (await fetch(`${server.url}/v1/lariat/state`, auth)).json();
  const stream = await client.chat.completions.create({ ...endless, stream: true });
  const waiting = assert.rejects(ask(endless), is(OpenAI.InternalServerError, 500, 'internal_error'));
  await eventually(10_000, async () => (await state()).requests_waiting === 1, 'a request that waits');
  const { ranks } = await state();
  let seen = 0;
  await assert.rejects(
    async () => {
      for await (const chunk of stream) {
        assert.equal(chunk.choices[0].finish_reason, null);
        if (++seen === 3) process.kill(ranks[0].pid, 'SIGKILL');
      }
    },
    (e) => {
      assert.ok(e instanceof OpenAI.APIError, `${e}`);
      assert.equal(e.code, 'internal_error');
      assert.equal(e.type, 'server_error');
      assert.ok(e.message.length > 5);
      return true;
    });
  assert.ok(seen >= 3);
  await assert.rejects(ask(), (e) => {
    assert.equal(e.headers.get('retry-after'), '1');
    return is(OpenAI.InternalServerError, 503, 'unavailable')(e);
  });
  await waiting;
  // The client that waits as told sees it come back.
  assert.equal((await ask({}, client, { maxRetries: 20 })).choices.length, 1);
  assert.ok(await health());
});

test('504: longer than --request-timeout', async () => {
  const hurried = await Server.start(['--request-timeout', '1']);
  try {
    const c = clientOf(hurried);
    await assert.rejects(ask(endless, c), is(OpenAI.InternalServerError, 504, 'deadline_exceeded'));
    await assert.rejects(
      async () => {
        for await (const chunk of await ask({ ...endless, stream: true }, c)) assert.ok(chunk.choices);
      },
      (e) => {
        assert.ok(e instanceof OpenAI.APIError, `${e}`);
        assert.equal(e.code, 'deadline_exceeded');
        return true;
      });
  } finally {
    assert.ok(await hurried.stop(), 'the server ends on SIGTERM');
  }
});
