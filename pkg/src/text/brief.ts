/** So much of a message that quotes a file as people read. */
export const brief = (message: string) => (message.length > 500 ? `${message.slice(0, 500)}\u2026` : message);
