/** What the headers of a server's answer tell of a file. */

/** How a body came encoded, of the encodings that fetch undoes; of others it leaves the bytes as they are. */
const ENCODING = /gzip|deflate|\bbr\b|zstd/i;

export const encodingOf = ({ headers }: Response): string | undefined =>
  ENCODING.exec(headers.get("content-encoding") ?? "")?.[0];

/** The length of a file from an answer with all of it; null where it is not shown. That of an encoded body is not the file's. */
export function lengthOf(response: Response): number | null {
  const length = encodingOf(response) ? null : response.headers.get("content-length");
  return length !== null && /^\d+$/.test(length) ? Number(length) : null;
}

/** What a partial answer says of itself: its first byte, and the size of the whole file where it is shown. */
export function rangeOf({ headers }: Response): { from: number; size: number | null } | null {
  const [, from, size] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers.get("content-range") ?? "") ?? [];
  return from === undefined ? null : { from: Number(from), size: size === "*" ? null : Number(size) };
}

/** Which header tells versions of a file apart. */
export function validatorName({ headers }: Response): "ETag" | "Last-Modified" | null {
  return headers.get("etag") ? "ETag" : headers.get("last-modified") ? "Last-Modified" : null;
}

/** Its value. Weak and strong ETags count alike: bytes are compared by their hashes. */
export function validatorOf({ headers }: Response): string | null {
  return headers.get("etag")?.replace(/^W\//, "") ?? headers.get("last-modified");
}
