// Seeded strings that tokenizers get wrong: Unicode of many kinds, code, runs of white space, emoji, digits, control
// tokens in the text, broken UTF-8.

// mulberry32
export function random(seed) {
  let a = seed >>> 0;
  const next = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (list) => list[below(list.length)] };
}

const BLOCKS = [
  [0x20, 0x7e], [0x20, 0x7e], [0x61, 0x7a], [0xa0, 0xff], [0x100, 0x17f], [0x300, 0x36f], [0x370, 0x3ff],
  [0x400, 0x4ff], [0x531, 0x556], [0x5d0, 0x5ea], [0x620, 0x64a], [0x660, 0x669], [0x905, 0x939], [0x93e, 0x94d],
  [0x966, 0x96f], [0xe01, 0xe3a], [0xe40, 0xe4e], [0x10a0, 0x10c5], [0x1100, 0x1112], [0x1161, 0x1175],
  [0x11a8, 0x11c2], [0x13a0, 0x13f5], [0x1e00, 0x1eff], [0x1f00, 0x1f15], [0x2010, 0x2027], [0x2030, 0x205e],
  [0x2070, 0x2071], [0x20a0, 0x20bf], [0x2100, 0x214f], [0x2150, 0x2189], [0x2190, 0x21ff], [0x2200, 0x22ff],
  [0x2460, 0x249b], [0x2500, 0x257f], [0x2600, 0x26ff], [0x3001, 0x303f], [0x3041, 0x3096], [0x30a1, 0x30fa],
  [0x3131, 0x318e], [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0xe000, 0xe010], [0xf900, 0xfa2d], [0xfb00, 0xfb06],
  [0xfe00, 0xfe0f], [0xff01, 0xff5e], [0x1d400, 0x1d454], [0x1f300, 0x1f5ff], [0x1f600, 0x1f64f], [0x1f900, 0x1f9ff],
  [0x20000, 0x2a6d6], [0x2f800, 0x2fa1d], [0xe0100, 0xe01ef],
];
const BLANKS = [" ", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u180e",
  "\u2000", "\u2003", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "\x1c", "\x1f", "\0"];
const EMOJI = ["😁", "🦙", "👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☺", "1️⃣", "🫠", "👨🏿‍🚀"];
const WORDS = ["the", "Hello", "world", "naïve", "café", "cafe\u0301", "Führer", "Fu\u0308hrer", "Việt", "東京", "こんにちは",
  "Привет", "مرحبا", "नमस्ते", "สวัสดี", "한국어", "\u1112\u1161\u11ab", "don't", "DON'T", "we'LL", "it'ſ", "I'm", "y'all", "'tis", "he'd've",
  "l’été", "HTTPServer", "snake_case", "camelCase", "x1y2z3", "½", "Ⅷ", "x²", "ﬁne", "Å", "\u212b", "\u2126", "ǆ", "İstanbul", "straße"];
const CODE = ["->", "(x):\n", "  def f(self):\n    return {}\n", "if (a && !b) {\n\t\tx += 1;\n}\n", "/* ... */", "<div class=\"a\">", "#include <vector>\n",
  "a[i]++ // 3", "\"\\n\"", "SELECT * FROM t WHERE id >= 10;", "0x1F 1e-9 3.14", "!=", "===", "::", "->*", "}}}\n\n\n", "\n    \n        x = y\n"];

function characters(r, n) {
  let s = "";
  let [low, high] = r.pick(BLOCKS);
  for (let i = 0; i < n; i++) {
    if (r.below(3) === 0) [low, high] = r.pick(BLOCKS);
    s += String.fromCodePoint(low + r.below(high - low + 1));
  }
  return s;
}
const many = (r, n, piece) => Array.from({ length: 1 + r.below(n) }, piece).join("");

export function strings(seed, count, specials, sources) {
  const r = random(seed);
  const kinds = [
    () => characters(r, 1 + r.below(30)),
    () => many(r, 8, () => r.pick(BLANKS).repeat(1 + r.below(4)) + (r.below(3) ? "" : r.pick(WORDS))),
    () => many(r, 10, () => r.pick(WORDS) + r.pick(["", " ", " ", "  ", ", ", ". ", "\n", "!"])),
    () => many(r, 6, () => r.pick(CODE) + r.pick(["", " ", "\n", "\t"])),
    () => many(r, 6, () => r.pick(EMOJI) + r.pick(["", " ", "a", "\ufe0f"])),
    () => many(r, 5, () => String(r.below(10 ** (1 + r.below(9)))) + r.pick(["", " ", ".", ",", "-", "a", "٣", "½"])),
    () => many(r, 6, () => r.pick([r.pick(specials), r.pick(specials), r.pick(BLANKS), r.pick(WORDS), "<|", "|>"])),
    () => r.pick(["=", "-", "*", "#", "a", "A", "_", ".", "\n", " ", "\t", "中", "é", "'"]).repeat(1 + r.below(120)),
    () => {
      const source = r.pick(sources);
      const at = r.below(Math.max(1, source.length - 200));
      return source.slice(at, at + 20 + r.below(180)).toWellFormed?.() ?? source.slice(at, at + 100).replace(/[\ud800-\udfff]/g, "");
    },
    () => many(r, 5, () => r.pick([() => characters(r, 4), () => r.pick(BLANKS), () => r.pick(WORDS), () => r.pick(EMOJI), () => r.pick(CODE)])()),
  ];
  return Array.from({ length: count }, (_, i) => kinds[i % kinds.length]());
}

// Bytes that are no UTF-8: characters cut, swapped, or with bytes put in.
export function brokenBytes(seed, count) {
  const r = random(seed);
  return Array.from({ length: count }, () => {
    const bytes = [...Buffer.from(many(r, 4, () => r.pick([r.pick(WORDS), r.pick(EMOJI), " ", characters(r, 3)])))];
    for (let i = 0; i < 1 + r.below(4); i++) {
      const at = r.below(bytes.length + 1);
      const how = r.below(3);
      if (how === 0) bytes.splice(at, 1);
      else if (how === 1) bytes.splice(at, 0, 0x80 + r.below(128));
      else if (at < bytes.length) bytes[at] = r.below(256);
    }
    return Buffer.from(bytes);
  });
}
