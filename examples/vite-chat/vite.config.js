// With these headers the page has threads; send them from your own server too.
const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

export default { server: { headers }, preview: { headers } };
