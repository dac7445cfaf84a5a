// C30: clients that go away, with one rank and with ranks that wait for each other.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { eventually, Server, within } from './server.mjs';

let server;
const post = (path, body) => {
  const text = JSON.stringify(body);
  return `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
};
const endless = (stream) => ({
  messages: [{ role: 'user', content: 'Count.' }], stream, max_tokens: 50_000, ignore_eos: true,
});
const longPrefill = (stream) => ({
  messages: [{ role: 'user', content: 'The lamp stood beside the river. '.repeat(8_000) }], stream, max_tokens: 1,
});

async function connect() {
  const socket = net.connect({ port: server.port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  await within(5_000, new Promise((done) => socket.once('connect', done)), 'connect');
  return socket;
}
const received = (socket) => within(30_000, new Promise((done) => socket.once('data', done)), 'first bytes');
const running = () => eventually(20_000, async () => {
  const s = await server.state();
  return s.requests.length > 0;
}, 'a running request');

// Far into its prompt: pages are taken as chunks are computed.
const deep = (pages) => eventually(120_000, async () => (await server.gauges()).lariat_kv_pages_used >= pages, `${pages} pages`);

// Row and pages are free within 2 s, and the next request is served.
async function free() {
  await server.idle(2_000);
  await eventually(2_000, async () => (await server.gauges()).lariat_kv_pages_used === 0, 'no page in use');
  assert.equal((await server.state()).epoch, 1, 'no rank was lost over it');
  const answer = await server.post('/v1/completions', { prompt: 'The', max_tokens: 1 });
  assert.equal(answer.status, 200);
}

for (const ranks of [1, 2]) describe(`${ranks} ranks`, () => {
  before(async () => {
    server = await Server.start(['--ranks', String(ranks), '--threads', '1']);
  });
  after(async () => {
    assert.ok(await server.stop(), 'the server ends on SIGTERM');
  });

  test('C30 (a) close after the first chunk', async () => {
    const socket = await connect();
    socket.write(post('/v1/chat/completions', endless(true)));
    await received(socket);
    socket.destroy();
    await free();
  });

  test('C30 (b) reset', async () => {
    const socket = await connect();
    socket.write(post('/v1/chat/completions', endless(true)));
    await received(socket);
    socket.resetAndDestroy();
    await free();
  });

  test('C30 (c) close during a long prefill', async () => {
    for (const stream of [true, false]) {
      const socket = await connect();
      socket.write(post('/v1/chat/completions', longPrefill(stream)));
      await running();
      await deep(100);
      socket.destroy();
      await free();
    }
  });

  test('C30 (d) close at once without stream', async () => {
    const socket = await connect();
    await new Promise((done) => socket.write(post('/v1/chat/completions', endless(false)), done));
    await running();
    socket.destroy();
    await free();
  });

  test('C30 (f) a half-closed client gets its whole answer', async () => {
    const body = { prompt: 'The pass key', max_tokens: 8, ignore_eos: true };
    const whole = (await server.post('/v1/completions', body)).json.choices[0].text;
    const socket = await connect();
    socket.end(post('/v1/completions', body).replace('Host: x', 'Host: x\r\nConnection: close'));
    let text = '';
    socket.on('data', (d) => (text += d));
    await within(30_000, new Promise((done) => socket.once('end', done)), 'the answer');
    socket.destroy();
    const final = text.slice(text.lastIndexOf('HTTP/1.1 200'));
    assert.equal(JSON.parse(final.slice(final.indexOf('\r\n\r\n') + 4)).choices[0].text, whole);
  });

  test('C30 (g) close at the last token, many times', async () => {
    const body = { prompt: 'The', max_tokens: 2, ignore_eos: true };
    for (let i = 0; i < (ranks === 1 ? 200 : 50); ++i) {
      const socket = await connect();
      socket.write(post('/v1/completions', { ...body, stream: i % 2 === 0 }));
      await received(socket);
      if (i % 3) socket.destroy();
      else socket.resetAndDestroy();
    }
    await free();
  });

  // Once is enough for what takes the write's whole timeout.
  test('C30 (e) a client that stops reading is cut off, and others keep their pace', { skip: ranks === 1 }, async () => {
    const before = (await server.gauges()).lariat_http_slow_clients_total;
    const socket = await connect();
    // Twenty alternatives a token: what nobody reads grows fast.
    socket.write(post('/v1/chat/completions', { ...endless(true), logprobs: true, top_logprobs: 20 }));
    await received(socket);
    socket.pause();
    const other = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(endless(true)) });
    const reader = other.body.getReader();
    const end = Date.now() + 120_000;
    while ((await server.gauges()).lariat_http_slow_clients_total === before) {
      assert.ok(Date.now() < end, 'cut off in time');
      await within(5_000, reader.read(), 'a token for who reads');
    }
    await eventually(2_000, async () => (await server.state()).requests.length === 1, 'one request');
    await within(5_000, reader.read(), 'a token for who reads');
    await reader.cancel();
    socket.destroy();
    await free();
  });
});

test('C30 a request that waits for the only slot gets it', async () => {
  server = await Server.start(['--ranks', '2', '--threads', '1', '--max-batch', '1']);
  try {
    for (const leave of [(s) => s.destroy(), (s) => s.resetAndDestroy()]) {
      const socket = await connect();
      socket.write(post('/v1/chat/completions', endless(true)));
      await received(socket);
      const waiting = server.post('/v1/completions', { prompt: 'The', max_tokens: 1 });
      await eventually(20_000, async () => (await server.gauges()).lariat_requests_waiting === 1, 'a waiting request');
      leave(socket);
      assert.equal((await within(3_000, waiting, 'its answer')).status, 200);
    }
    await free();
  } finally {
    assert.ok(await server.stop());
  }
});
