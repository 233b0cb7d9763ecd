/** Examines an address by no more than its first bytes. */
import { credentialsOf, shown as shownAddress, withoutSecrets } from "../source/address.ts";
import { lengthOf, rangeOf, validatorName } from "../source/response_headers.ts";
import type { SourceReport } from "./report.ts";

const FIRST = 16;

/** @param origin of the page that asks; null for a program, which may read everything: its report tells what pages may read */
export async function lookAt(address: string, origin: string | null, signal?: AbortSignal): Promise<SourceReport> {
  const { url, authorization } = credentialsOf(address);
  const report: SourceReport = {
    url: shownAddress(address),
    status: null,
    error: null,
    size: null,
    range: false,
    validator: null,
    contentType: null,
    format: null,
    cors: null,
  };
  const foreign = origin !== null && url.origin !== origin;
  let response: Response;
  try {
    const headers: Record<string, string> = { range: `bytes=0-${FIRST - 1}` };
    if (authorization) headers.authorization = authorization;
    // In a page the browser sets this header, to the page's own origin.
    if (origin === null) headers.origin = "https://a-page.example";
    response = await fetch(url, { headers, cache: "no-store", ...(signal && { signal }) });
  } catch (error) {
    signal?.throwIfAborted();
    if (foreign) report.cors = (await answersUnread(url, signal)) ? false : null;
    const { message, cause } = error as Error;
    const said = cause instanceof Error && cause.message ? `${message}: ${cause.message}` : message;
    return { ...report, error: withoutSecrets(said) };
  }
  const shown = (name: string) => response.headers.get(name);
  const allowed = shown("access-control-allow-origin");
  if (foreign) report.cors = true;
  else if (origin === null) report.cors = allowed !== null;
  report.status = response.status;
  report.contentType = shown("content-type");
  report.validator = validatorName(response);
  if (!response.ok) {
    await response.body?.cancel().catch(() => {});
    return { ...report, error: `HTTP ${response.status}` };
  }
  report.range = response.status === 206;
  report.size = report.range ? (rangeOf(response)?.size ?? null) : lengthOf(response);
  report.format = kind(await start(response), report.contentType);
  return report;
}

/** Whether a server answers at all. The browser hides the answer itself. */
function answersUnread(url: URL, signal?: AbortSignal): Promise<boolean> {
  return fetch(url, { method: "HEAD", mode: "no-cors", ...(signal && { signal }) }).then(
    () => true,
    () => false,
  );
}

async function start(response: Response): Promise<Uint8Array> {
  const bytes: number[] = [];
  const reader = response.body?.getReader();
  while (reader && bytes.length < FIRST) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes.push(...value.subarray(0, FIRST - bytes.length));
  }
  await reader?.cancel().catch(() => {});
  return Uint8Array.from(bytes);
}

function kind(bytes: Uint8Array, type: string | null): SourceReport["format"] {
  const text = new TextDecoder("latin1").decode(bytes);
  if (text.startsWith("GGUF")) return "GGUF";
  if (text[8] === "{") return "safetensors";
  return /^text\/html/i.test(type ?? "") || text.trimStart().startsWith("<") ? "web page" : "unknown";
}
