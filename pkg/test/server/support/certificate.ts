/** A certificate that a test makes for itself: for localhost and 127.0.0.1, signed by its own key. */

import { generateKeyPairSync, sign } from "node:crypto";

/** One value in DER: a tag, a length and what it holds. */
function der(tag: number, ...parts: readonly (Uint8Array | string)[]): Buffer {
  const body = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  const { length } = body;
  const long = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...(length < 128 ? [length] : long)]), body]);
}

const [INTEGER, BITS, OCTETS, OID, UTF8, TIME, SEQUENCE, SET] = [0x02, 0x03, 0x04, 0x06, 0x0c, 0x17, 0x30, 0x31];
const sequence = (...parts: Uint8Array[]) => der(SEQUENCE, ...parts);
const oid = (hex: string) => der(OID, Buffer.from(hex, "hex"));

/** `260131120000Z` */
const time = (date: Date) => der(TIME, `${date.toISOString().replace(/[-:T]/g, "").slice(2, 14)}Z`);

export function certificate(): { cert: string; key: string } {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const day = 86_400_000;
  const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"));
  const name = sequence(der(SET, sequence(oid("550403"), der(UTF8, "localhost"))));
  const names = sequence(der(0x82, "localhost"), der(0x87, Buffer.from([127, 0, 0, 1])));
  const extensions = sequence(sequence(oid("551d11"), der(OCTETS, names)));
  const body = sequence(
    // Version 3.
    der(0xa0, der(INTEGER, Buffer.from([2]))),
    der(INTEGER, Buffer.from([1])),
    ecdsaWithSha256,
    name,
    sequence(time(new Date(Date.now() - day)), time(new Date(Date.now() + day))),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, extensions),
  );
  const signature = der(BITS, Buffer.from([0]), sign("sha256", body, privateKey));
  const base64 = sequence(body, ecdsaWithSha256, signature).toString("base64");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${base64.match(/.{1,64}/g)!.join("\n")}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
  };
}
