/** Lines of a stream of bytes. LF alone ends them: JSON leaves as they are the other characters that end lines elsewhere. */

const LF = 0x0a;

export interface LineSettings {
  /** Bytes of a line at most: longer ones are null, and are not kept. @default any number */
  most?: number;
  /** Whether what stands behind the last LF is a line, too. @default true */
  rest?: boolean;
}

/** The lines of each piece of input, without their ends. */
export async function* linesOf(
  bytes: AsyncIterable<Uint8Array>,
  { most = Number.POSITIVE_INFINITY, rest: last = true }: LineSettings = {},
): AsyncGenerator<(Uint8Array | null)[], undefined> {
  let open: Uint8Array[] = [];
  let size = 0;
  const close = (end: Uint8Array): Uint8Array | null => {
    const whole = open.length === 0 ? end : Buffer.concat([...open, end]);
    const long = size + end.length > most;
    [open, size] = [[], 0];
    return long ? null : whole;
  };
  for await (const chunk of bytes) {
    const lines: (Uint8Array | null)[] = [];
    let at = 0;
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, at)) {
      lines.push(close(chunk.subarray(at, end)));
      at = end + 1;
    }
    const rest = chunk.subarray(at);
    size += rest.length;
    // Of what is too long, its length alone is kept.
    if (size > most) open = [];
    else if (rest.length > 0) open.push(rest.slice());
    if (lines.length > 0) yield lines;
  }
  if (last && size > 0) yield [close(new Uint8Array())];
}
