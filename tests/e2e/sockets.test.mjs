// What a library would never send or do: split bytes, very long runs, hostile bodies. C03, C41 (e). Clients that go away:
// disconnect.test.mjs.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { Server, within } from './server.mjs';

let server;
before(async () => {
  server = await Server.start();
});
after(async () => {
  assert.ok(!server || (await server.stop()), 'the server ends on SIGTERM');
});

const post = (path, body) => {
  const text = JSON.stringify(body);
  return `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
};
const endless = (stream) => ({
  messages: [{ role: 'user', content: 'Count.' }], stream, max_tokens: 50_000, ignore_eos: true,
});

async function connect() {
  const socket = net.connect({ port: server.port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  await within(5_000, new Promise((done) => socket.once('connect', done)), 'connect');
  return socket;
}

async function free() {
  await server.idle(2_000);
  const answer = await server.post('/v1/completions', { prompt: 'The', max_tokens: 1 });
  assert.equal(answer.status, 200);
}

test('a stream read byte by byte is valid JSON (C41 e)', async () => {
  const socket = await connect();
  socket.end(post('/v1/completions', { prompt: 'The', max_tokens: 8, stream: true }).replace('Host: x', 'Host: x\r\nConnection: close'));
  const bytes = [];
  socket.on('data', (d) => bytes.push(...d));
  await within(30_000, new Promise((done) => socket.once('end', done)), 'the stream');
  socket.destroy();
  const lines = Buffer.from(bytes).toString().split('\n').filter((l) => l.startsWith('data: '));
  assert.equal(lines.at(-1), 'data: [DONE]');
  for (const line of lines.slice(0, -1)) JSON.parse(line.slice(6));
});

test('C03 very long runs as prompts, while another stream goes on', async () => {
  const small = await Server.start(['--context', '4096']);
  try {
    const stream = await fetch(`${small.url}/v1/completions`, {
      method: 'POST', signal: AbortSignal.timeout(120_000),
      body: JSON.stringify({ prompt: 'The', max_tokens: 4000, ignore_eos: true, stream: true }),
    });
    const reader = stream.body.getReader();
    for (const run of ['a'.repeat(100_000), '^'.repeat(1_000_000), ' '.repeat(200_000), '中'.repeat(30_000)]) {
      const { tokens } = (await small.post('/tokenize', { prompt: run })).json;
      const answer = within(60_000, small.post('/v1/completions', { prompt: run, max_tokens: 1 }), 'an answer');
      await within(30_000, reader.read(), 'the other stream');
      const { status, json } = await answer;
      if (tokens.length < 4096) {
        assert.equal(status, 200);
        assert.equal(json.usage.prompt_tokens, tokens.length);
      } else {
        assert.equal(status, 400);
        assert.equal(json.error.code, 'context_length_exceeded');
        assert.match(json.error.message, new RegExp(`${tokens.length}`));
      }
    }
    await reader.cancel();
  } finally {
    assert.ok(await small.stop(), 'the server ends on SIGTERM');
  }
});

test('C03 very long runs, while another stream goes on', async () => {
  const stream = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST', body: JSON.stringify(endless(true)), signal: AbortSignal.timeout(240_000),
  });
  const reader = stream.body.getReader();
  await within(30_000, reader.read(), 'first chunk');
  const runs = ['a'.repeat(100_000), '^'.repeat(1_000_000), ' '.repeat(200_000), '中'.repeat(30_000)];
  for (const run of runs) {
    // Nothing is generated: the question is the tokenizer and what stands around it, not a long prefill.
    const tokenized = within(60_000, server.post('/tokenize', { prompt: run }), 'tokenize');
    await within(30_000, reader.read(), 'the other stream');
    const { tokens } = (await tokenized).json;
    const back = (await server.post('/detokenize', { tokens })).json.prompt;
    assert.ok(back.endsWith(run), 'decode(encode(s)) == s');
    if (tokens.length <= 131_072) continue;
    const answer = await server.post('/v1/completions', { prompt: run, max_tokens: 1 });
    assert.equal(answer.status, 400);
    assert.equal(answer.json.error.code, 'context_length_exceeded');
    assert.match(answer.json.error.message, new RegExp(`${tokens.length}.*131072`));
  }
  await within(30_000, reader.read(), 'the other stream');
  await reader.cancel();
  await free();
});

test('hostile bodies', async () => {
  const deep = '{"messages":' + '['.repeat(10_000) + ']'.repeat(10_000) + '}';
  for (const body of [deep, '\u0000', '{"messages":"\u0001"}', 'x', '[]', '{"messages":[{"role":"user","content":"\\ud800"}]}']) {
    const answer = await server.post('/v1/chat/completions', body);
    assert.equal(answer.status, 400, body.slice(0, 30));
    assert.equal(answer.json.error.type, 'invalid_request_error');
    assert.equal((await server.get('/health')).status, 200);
  }
  const large = await server.post('/v1/completions', JSON.stringify({ prompt: 'x'.repeat(17 << 20) }));
  assert.equal(large.status, 413);
});
