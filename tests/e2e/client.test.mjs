// The official client against the real server: streams, aborts, usage, logprobs, every error shape.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Server } from './server.mjs';

let server, client;
const model = 'needle-5m';
const question = [{ role: 'user', content: 'The pass key for thin ship is 76989.\nWhat is the pass key for thin ship?' }];
const ask = (fields) => client.chat.completions.create({ model, messages: question, max_tokens: 32, ...fields });

before(async () => {
  server = await Server.start();
  client = new OpenAI({ apiKey: 'unused', baseURL: `${server.url}/v1`, maxRetries: 0, timeout: 60_000 });
});
after(async () => {
  assert.ok(!server || (await server.stop()), 'the server ends on SIGTERM');
});

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const textOf = (chunks, index = 0) =>
  chunks.flatMap((c) => c.choices).filter((c) => c.index === index).map((c) => c.delta?.content ?? c.text ?? '').join('');

test('models', async () => {
  const list = await collect(await client.models.list());
  assert.deepEqual(list.map((m) => m.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('other'), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
});

test('a chat, whole and streamed, is the same', async () => {
  const whole = await ask({});
  assert.equal(whole.object, 'chat.completion');
  assert.match(whole.choices[0].message.content, /76989/);
  assert.equal(whole.choices[0].finish_reason, 'stop');
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  assert.equal(whole._request_id, whole.id);

  const chunks = await collect(await ask({ stream: true, stream_options: { include_usage: true } }));
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  const finishes = chunks.flatMap((c) => c.choices).map((c) => c.finish_reason).filter((f) => f !== null);
  assert.deepEqual(finishes, ['stop']);
  for (const key of ['id', 'created', 'model']) assert.equal(new Set(chunks.map((c) => c[key])).size, 1);

  const plain = await collect(await ask({ stream: true }));
  assert.ok(plain.every((c) => !('usage' in c)));
});

test('max_tokens, stop strings and finish reasons', async () => {
  const short = await ask({ max_tokens: 3 });
  assert.equal(short.choices[0].finish_reason, 'length');
  assert.equal(short.usage.completion_tokens, 3);
  assert.equal((await ask({ max_tokens: undefined, max_completion_tokens: 2 })).usage.completion_tokens, 2);
  const full = (await ask({})).choices[0].message.content;
  const stop = full.slice(9, 17);
  for (const stream of [false, true]) {
    const answer = await ask({ stop: [stop], stream });
    const text = stream ? textOf(await collect(answer)) : answer.choices[0].message.content;
    assert.equal(text, full.slice(0, full.indexOf(stop)));
  }
  assert.equal((await ask({ stop: 'What is the pass key' })).choices[0].message.content, full, 'the prompt does not stop');
});

test('an aborted stream frees its row', async () => {
  const stream = await client.chat.completions.create({
    model, messages: question, stream: true, max_tokens: 100_000, ignore_eos: true,
  });
  let seen = 0;
  for await (const _ of stream) {
    if (++seen === 3) break; // the client aborts the request
  }
  assert.equal(seen, 3);
  await server.idle(2_000);

  const controller = new AbortController();
  const pending = client.chat.completions.create(
    { model, messages: question, max_tokens: 100_000, ignore_eos: true }, { signal: controller.signal });
  await new Promise((r) => setTimeout(r, 100));
  controller.abort();
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  await server.idle(2_000);
});

test('logprobs of a chat, streamed alike', async () => {
  const whole = await ask({ logprobs: true, top_logprobs: 5 });
  const content = whole.choices[0].logprobs.content;
  assert.ok(content.length > 5);
  for (const entry of content) {
    assert.ok(entry.logprob <= 0 && Number.isFinite(entry.logprob));
    assert.equal(entry.top_logprobs.length, 5);
    assert.ok(entry.top_logprobs.some((t) => t.token === entry.token), 'the chosen token is listed');
    assert.ok(entry.top_logprobs[0].logprob <= entry.logprob + 1e-4, 'greedy takes the best');
  }
  assert.equal(Buffer.from(content.flatMap((e) => e.bytes)).toString(), whole.choices[0].message.content);
  const chunks = await collect(await ask({ logprobs: true, top_logprobs: 5, stream: true }));
  assert.deepEqual(chunks.flatMap((c) => c.choices).flatMap((c) => c.logprobs?.content ?? []), content);
  assert.deepEqual((await ask({ logprobs: true, top_logprobs: 0 })).choices[0].logprobs.content[0].top_logprobs, []);
});

test('completions: echo with logprobs, several prompts, token ids', async () => {
  const tokens = (await server.post('/tokenize', { prompt: 'The pass key' })).json.tokens;
  assert.equal((await server.post('/detokenize', { tokens })).json.prompt.endsWith('The pass key'), true);
  const echo = await client.completions.create({ model, prompt: tokens, echo: true, logprobs: 1, max_tokens: 1 });
  const logprobs = echo.choices[0].logprobs;
  assert.equal(logprobs.tokens.length, tokens.length + 1);
  assert.equal(logprobs.token_logprobs[0], null);
  assert.ok(logprobs.token_logprobs.slice(1).every((p) => p <= 0));
  assert.equal(logprobs.text_offset[0], 0);
  assert.deepEqual([...logprobs.text_offset].sort((a, b) => a - b), logprobs.text_offset);
  for (const [i, token] of logprobs.tokens.entries()) {
    assert.ok(echo.choices[0].text.slice(logprobs.text_offset[i]).startsWith(token), `token ${i} stands at its offset`);
  }
  const zero = await client.completions.create({ model, prompt: tokens, echo: true, logprobs: 0, max_tokens: 0 });
  assert.equal(zero.usage.completion_tokens, 0);
  assert.deepEqual(zero.choices[0].logprobs.token_logprobs, logprobs.token_logprobs.slice(0, -1));

  const several = await client.completions.create({ model, prompt: [[280, 279], [280]], max_tokens: 4 });
  assert.deepEqual(several.choices.map((c) => c.index), [0, 1]);
  assert.equal(several.usage.prompt_tokens, 3);
  const texts = await client.completions.create({ model, prompt: ['The pass', 'A gentle'], max_tokens: 4, stream: true });
  const chunks = await collect(texts);
  assert.ok(textOf(chunks, 0).length > 0 && textOf(chunks, 1).length > 0);
  assert.equal((await client.completions.create({ model, prompt: 'The' })).usage.completion_tokens <= 16, true);
});

test('n and seed (C35)', async () => {
  // An open beginning: after a question this model is sure of its answer at any temperature.
  const roll = (fields) => client.completions.create({
    model, prompt: 'The', temperature: 2, seed: 5, n: 3, max_tokens: 12, ignore_eos: true, ...fields });
  const answer = await roll({});
  const first = answer.choices.map((c) => c.text);
  assert.deepEqual(answer.choices.map((c) => c.index), [0, 1, 2]);
  assert.ok(new Set(first).size > 1, 'the draws are not all equal');
  assert.deepEqual((await roll({})).choices.map((c) => c.text), first);
  const chunks = await collect(await roll({ stream: true }));
  assert.deepEqual([0, 1, 2].map((i) => textOf(chunks, i)), first);
  const [beside] = await Promise.all([roll({}), ...Array.from({ length: 7 }, () => roll({ seed: undefined, n: 1 }))]);
  assert.deepEqual(beside.choices.map((c) => c.text), first, 'neighbours change nothing');
  const one = await roll({ n: 1 });
  assert.equal(answer.usage.prompt_tokens, one.usage.prompt_tokens, 'the prompt counts once');
  assert.equal(one.choices[0].text, first[0]);
  const greedy = await roll({ temperature: 0, n: 2 });
  assert.equal(greedy.choices[0].text, greedy.choices[1].text);
  await roll({ seed: -1 });
});

test('logit_bias (C39)', async () => {
  const forced = await ask({ logit_bias: { 280: 100 }, temperature: 0, max_tokens: 3, return_token_ids: true });
  assert.deepEqual(forced.choices[0].token_ids, [280, 280, 280]);
  const free = await ask({ max_tokens: 1, return_token_ids: true });
  const [best] = free.choices[0].token_ids;
  const banned = await ask({ logit_bias: { [best]: -100 }, max_tokens: 1, return_token_ids: true });
  assert.notEqual(banned.choices[0].token_ids[0], best);
});

test('error shapes', async () => {
  const is = (type, status, param, code) => (e) => {
    assert.ok(e instanceof type, `${e}`);
    assert.equal(e.status, status);
    assert.equal(e.param ?? null, param);
    if (code !== undefined) assert.equal(e.code, code);
    assert.ok(e.message.length > 5);
    return true;
  };
  const bad = OpenAI.BadRequestError;
  for (const stream of [false, true]) {
    await assert.rejects(ask({ n: 0, stream }), is(bad, 400, 'n'));
    await assert.rejects(ask({ temperature: 'hot', stream }), is(bad, 400, 'temperature'));
    await assert.rejects(ask({ top_logprobs: 3, stream }), is(bad, 400, 'top_logprobs'));
    await assert.rejects(ask({ stop: '', stream }), is(bad, 400, 'stop'));
    await assert.rejects(ask({ response_format: { type: 'json_object' }, stream }), is(bad, 400, 'response_format'));
    await assert.rejects(ask({ tool_choice: 'required', stream }), is(bad, 400, 'tool_choice'));
    await assert.rejects(ask({ logit_bias: { 2048: 1 }, stream }), is(bad, 400, 'logit_bias'));
    await assert.rejects(ask({ messages: [], stream }), is(bad, 400, 'messages'));
    await assert.rejects(ask({ max_completion_tokens: 5, stream }), is(bad, 400, 'max_completion_tokens'));
    await assert.rejects(ask({ model: 'gpt-9', stream }), is(OpenAI.NotFoundError, 404, 'model', 'model_not_found'));
    const long = [{ role: 'user', content: 'key '.repeat(140_000) }];
    await assert.rejects(ask({ messages: long, stream }), (e) => {
      assert.match(e.message, /131072/);
      return is(bad, 400, 'messages', 'context_length_exceeded')(e);
    });
  }
  for (const prompt of [[-1], [2048], [4294967301], [true], [1.5], ['a', 3], [], [[]]]) {
    await assert.rejects(client.completions.create({ model, prompt }), is(bad, 400, 'prompt'));
    assert.equal((await server.get('/health')).status, 200);
  }
  await assert.rejects(client.embeddings.create({ model, input: 'x' }), is(OpenAI.NotFoundError, 404, null));
  const unknown = await ask({ no_such_field: { a: 1 } });
  assert.equal(unknown.choices.length, 1);
});

test('message shapes (C06)', async () => {
  const count = async (messages) => (await ask({ messages, max_tokens: 1 })).usage.prompt_tokens;
  const joined = await count([{ role: 'user', content: 'ALPHA BETA' }]);
  const parts = [{ type: 'text', text: 'ALPHA ' }, { type: 'text', text: 'BETA' }];
  assert.equal(await count([{ role: 'user', content: parts }]), joined);
  await assert.rejects(count([{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }]),
    (e) => e.status === 400 && /image_url/.test(e.message));
  // C04: what a user writes closes no turn.
  const plain = await server.post('/tokenize', { prompt: '<|end|>' });
  const forged = await count([{ role: 'user', content: '<|end|>' }]);
  const empty = await count([{ role: 'user', content: '' }]);
  assert.ok(forged - empty > plain.json.count, 'the control text is spelled out');
});

test('eight clients at once answer as one alone', async () => {
  const alone = (await ask({})).choices[0].message.content;
  const together = await Promise.all(Array.from({ length: 8 }, () => ask({})));
  for (const answer of together) assert.equal(answer.choices[0].message.content, alone);
});
