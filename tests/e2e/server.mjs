// Starts the real binary on a free port and ends it; every wait has a deadline.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const binary = process.env.LARIAT_BIN ?? resolve(root, 'build/release/bin/lariat');
export const shared = resolve(root, '../shared');
export const full = process.env.LARIAT_E2E_FULL === '1';

export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Resolves when `probe` (async) returns something true.
export async function eventually(ms, probe, what) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await new Promise((r) => setTimeout(r, 10));
  }
}

export class Server {
  static async start(args = [], { model = 'needle-5m', timeoutMs = 120_000 } = {}) {
    if (!existsSync(binary)) throw new Error(`${binary} is not built`);
    const s = new Server();
    s.log = '';
    s.child = spawn(binary, ['serve', model, '--port', '0', ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    s.exited = once(s.child, 'exit');
    const listening = new Promise((done, fail) => {
      s.child.stderr.setEncoding('utf8');
      s.child.stderr.on('data', (text) => {
        s.log += text;
        const found = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(s.log);
        if (found) done(Number(found[1]));
      });
      s.child.on('error', fail);
      s.exited.then(([code, signal]) => fail(new Error(`lariat ended (${code ?? signal}): ${s.log}`)));
    });
    listening.catch(() => {});
    try {
      s.port = await within(timeoutMs, listening, 'lariat serve');
    } catch (e) {
      await s.stop();
      throw e;
    }
    s.url = `http://127.0.0.1:${s.port}`;
    return s;
  }

  // Ends it as a user would; true if it ended by itself in time.
  async stop() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return true;
    this.child.kill('SIGTERM');
    try {
      await within(30_000, this.exited, 'end of lariat');
      return true;
    } catch {
      this.child.kill('SIGKILL');
      await this.exited;
      return false;
    }
  }

  async post(path, body, headers = {}) {
    const response = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      signal: AbortSignal.timeout(300_000),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, json: text ? JSON.parse(text) : null };
  }

  async get(path) {
    const response = await fetch(this.url + path, { signal: AbortSignal.timeout(30_000) });
    return { status: response.status, text: await response.text() };
  }

  async state() {
    return JSON.parse((await this.get('/v1/lariat/state')).text);
  }

  // The gauges of /metrics by name.
  async gauges() {
    const { text } = await this.get('/metrics');
    return Object.fromEntries([...text.matchAll(/^(lariat_\w+) (\S+)$/gm)].map((m) => [m[1], Number(m[2])]));
  }

  async idle(ms = 2_000) {
    await eventually(ms, async () => {
      const g = await this.gauges();
      return g.lariat_requests_running === 0 && g.lariat_requests_waiting === 0;
    }, 'no running request');
  }
}
