/** Gives a model of random weights the tokenizer that its vocabulary wants, so that it takes text as a real file does, and as large a header. */

const STRING = 8;
const ARRAY = 9;
const U32 = 4;
/** Bytes of a GGUF value of each type but strings and arrays. */
const SIZES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const ALIGNMENT = 32;
/** The bytes as byte-level BPE writes them. */
const letters = () => {
  const shown = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(shown(byte) ? byte : next++));
};

/** Tokens and merges: bytes, then pairs of bytes, then those with a third. */
function vocabulary(size) {
  const [bytes, tokens, merges] = [letters(), letters(), []];
  for (let of = 0; tokens.length < size - 1; of++) {
    for (const byte of bytes) {
      if (tokens.length === size - 1) break;
      merges.push(`${tokens[of]} ${byte}`);
      tokens.push(tokens[of] + byte);
    }
  }
  return { tokens: [...tokens, "<|im_end|>"], merges };
}

const u32 = (value) => Buffer.from(Uint32Array.of(value).buffer);
const u64 = (value) => Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
function string(text) {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function keys(size) {
  const { tokens, merges } = vocabulary(size);
  const key = (name, type) => [string(`tokenizer.ggml.${name}`), u32(type)];
  const strings = (name, list) => [...key(name, ARRAY), u32(STRING), u64(list.length), ...list.map(string)];
  const types = Buffer.concat(tokens.map((_, i) => u32(i === size - 1 ? 3 : 1)));
  const all = [
    [...key("model", STRING), string("gpt2")],
    [...key("pre", STRING), string("qwen35")],
    strings("tokens", tokens),
    [...key("token_type", ARRAY), u32(5), u64(size), types],
    strings("merges", merges),
    [...key("eos_token_id", U32), u32(size - 1)],
  ];
  return { count: all.length, bytes: Buffer.concat(all.flat()) };
}

/** Where the keys of a GGUF end, where its tensors' descriptions do, and its vocabulary. */
function read(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 24;
  const number = (size) => {
    at += size;
    return size === 8 ? Number(view.getBigUint64(at - 8, true)) : view.getUint32(at - 4, true);
  };
  const text = () => {
    const length = number(8);
    at += length;
    return bytes.subarray(at - length, at).toString();
  };
  const value = (type) => {
    if (type === STRING) return text();
    if (type !== ARRAY) {
      const found = type === U32 ? view.getUint32(at, true) : null;
      at += SIZES[type];
      return found;
    }
    const [of, count] = [number(4), number(8)];
    for (let i = 0; i < count; i++) value(of);
    return null;
  };
  let vocab = 0;
  const [tensors, count] = [8, 16].map((from) => Number(view.getBigUint64(from, true)));
  for (let i = 0; i < count; i++) {
    const name = text();
    const found = value(number(4));
    if (name.endsWith(".vocab_size")) vocab = found;
  }
  const keysEnd = at;
  for (let i = 0; i < tensors; i++) {
    text();
    const dims = number(4);
    at += 8 * dims + 12;
  }
  return { tensors, count, keysEnd, end: at, vocab };
}

const padded = (length) => Math.ceil(length / ALIGNMENT) * ALIGNMENT;

/** The pieces of the file. */
export async function* withTokenizer(file) {
  const head = Buffer.from(await file.slice(0, 1 << 22).arrayBuffer());
  const { tensors, count, keysEnd, end, vocab } = read(head);
  const added = keys(vocab);
  const header = Buffer.concat([
    head.subarray(0, 8),
    u64(tensors),
    u64(count + added.count),
    head.subarray(24, keysEnd),
    added.bytes,
    head.subarray(keysEnd, end),
  ]);
  yield header;
  yield Buffer.alloc(padded(header.length) - header.length);
  yield* file.slice(padded(end)).stream();
}
