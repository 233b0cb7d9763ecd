/** URLs of queues. They hold passwords, so that no message has one as it is. */

export const isPostgres = (url: string): boolean => /^postgres(ql)?:/i.test(url);

/** An @ behind what seems to be the host: a password that has / ? or # in it as they are may seem to be host, port and path. */
const UNCLEAR = /^[^/]*\/\/[^/?#]*[/?#].*@/s;

/** The URL without what is secret in it. */
export function shownUrl(url: string): string {
  if (!URL.canParse(url) || UNCLEAR.test(url)) return "the queue's URL";
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
