/** Little-endian bytes, one field after another. */

export class Writer {
  readonly #parts: Uint8Array[] = [];
  #length = 0;

  bytes(bytes: Uint8Array): this {
    this.#parts.push(bytes);
    this.#length += bytes.length;
    return this;
  }

  u16(value: number): this {
    return this.bytes(new Uint8Array(new Uint16Array([value]).buffer));
  }

  u32(value: number): this {
    return this.bytes(new Uint8Array(new Uint32Array([value]).buffer));
  }

  u64(value: number): this {
    return this.bytes(new Uint8Array(new BigUint64Array([BigInt(value)]).buffer));
  }

  string(text: string): this {
    const utf8 = new TextEncoder().encode(text);
    return this.u64(utf8.length).bytes(utf8);
  }

  pad(alignment: number): this {
    return this.bytes(new Uint8Array((alignment - (this.#length % alignment)) % alignment));
  }

  done(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.#length);
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
