// Small tokenizers with the settings that the two real ones do not have: a cut of a real vocabulary under other
// pre-tokenizers and added tokens.
import fs from "node:fs";

const TOKENS = 6000;

export function variants(file) {
  const real = JSON.parse(fs.readFileSync(file, "utf8"));
  const vocab = Object.fromEntries(Object.entries(real.model.vocab).filter(([, id]) => id < TOKENS));
  const has = (t) => Object.hasOwn(vocab, t);
  const pairs = real.model.merges.map((m) => (typeof m === "string" ? m.split(" ") : m)).filter(([a, b]) => has(a) && has(b) && has(a + b));
  const token = (id, content, more) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more });
  const base = {
    version: "1.0", truncation: null, padding: null, normalizer: null, post_processor: null,
    added_tokens: [token(TOKENS, "<|end|>"), token(TOKENS + 1, "<|endoftext|>"), token(TOKENS + 2, "<|end", { special: false })],
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
      fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges: pairs },
  };
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const split = (pattern, behavior, invert = false) => ({ type: "Split", pattern, behavior, invert });
  const sequence = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
  const without = (bytes) => {
    // Numbered anew: the reference gives added tokens the ids that follow the vocabulary's size.
    const kept = Object.fromEntries(Object.keys(vocab).filter((t) => !bytes.some((b) => t.includes(b))).map((t, id) => [t, id]));
    return { ...base.model, vocab: kept, merges: pairs.filter((p) => p.every((t) => Object.hasOwn(kept, t)) && Object.hasOwn(kept, p.join(""))) };
  };
  const gaps = (more) => {
    const model = without(["A", "é", "¤"]);
    return { model: { ...model, ...more }, added_tokens: [token(Object.keys(model.vocab).length, "<|end|>")] };
  };
  const list = [
    ["plain", {}],
    ["merges-as-strings", { model: { ...base.model, merges: pairs.map((p) => p.join(" ")) } }],
    ["prefix-space", { pre_tokenizer: { ...base.pre_tokenizer, add_prefix_space: true } }],
    ["no-regex", { pre_tokenizer: byteLevel }],
    ["ignore-merges", { model: { ...base.model, ignore_merges: true } }],
    ["nfc", { normalizer: { type: "Sequence", normalizers: [{ type: "NFC" }] } }],
    ["digits", { pre_tokenizer: sequence({ type: "Digits", individual_digits: true }, base.pre_tokenizer) }],
    ["digit-runs", { pre_tokenizer: sequence({ type: "Digits", individual_digits: false }, base.pre_tokenizer) }],
    ["digits-prefix-space", { pre_tokenizer: sequence({ type: "Digits", individual_digits: true }, { ...base.pre_tokenizer, add_prefix_space: true }) }],
    ["o200k", { pre_tokenizer: sequence(split({ Regex: "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" }, "Removed", true), byteLevel) }],
    ["deepseek", { pre_tokenizer: sequence(split({ Regex: "\\p{N}{1,3}" }, "Isolated"), split({ Regex: "[一-龥぀-ゟ゠-ヿ]+" }, "Isolated"),
      split({ Regex: "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+" }, "Isolated"), byteLevel) }],
    ["unk", gaps({ unk_token: "?" })],
    ["unk-fused", gaps({ unk_token: "?", fuse_unk: true })],
    ["bytes-missing", gaps({})],
    ["added-strip", { added_tokens: [token(TOKENS, "<|end|>", { lstrip: true }), token(TOKENS + 1, "<sep>", { rstrip: true, special: false }), token(TOKENS + 2, "naïve", { single_word: true, special: false }),
      token(TOKENS + 3, "<both>", { lstrip: true, rstrip: true })] }],
    ["added-normalized", { normalizer: { type: "NFC" }, added_tokens: [token(TOKENS, "<|end|>", { normalized: true }), token(TOKENS + 1, "caf\u00e9", { normalized: true, special: false }), token(TOKENS + 2, "<raw>")] }],
    ["bos", { post_processor: { type: "TemplateProcessing", single: [{ SpecialToken: { id: "<|end|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }], pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
      special_tokens: { "<|end|>": { id: "<|end|>", ids: [TOKENS], tokens: ["<|end|>"] } } } }],
  ];
  for (const behavior of ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]) {
    for (const invert of [false, true]) {
      list.push([`split-${behavior}-${invert}`, { pre_tokenizer: sequence(split({ Regex: "\\p{L}+|\\s" }, behavior, invert), byteLevel) }]);
    }
    list.push([`split-string-${behavior}`, { pre_tokenizer: sequence(split({ String: " " }, behavior), byteLevel) }]);
  }
  return list.map(([name, change]) => [name, { ...base, ...change }]);
}
