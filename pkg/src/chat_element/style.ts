/** The look of the chat. It follows the page's `color-scheme`; pages change it by custom properties and parts. */
export const CSS = `
:host {
  --ink: var(--ternlight-chat-color, #14222b);
  --paper: var(--ternlight-chat-background, #fff);
  --quiet: var(--ternlight-chat-muted, #52636e);
  --line: var(--ternlight-chat-border, #7d8d97);
  --accent: var(--ternlight-chat-accent, #11587a);
  --on-accent: var(--ternlight-chat-on-accent, #fff);
  --bubble: var(--ternlight-chat-user, #e6eef2);
  --wrong: var(--ternlight-chat-error, #a6201d);
  display: flex;
  flex-direction: column;
  box-sizing: border-box;
  block-size: 28rem;
  min-block-size: 12rem;
  overflow: hidden;
  border: 1px solid var(--line);
  border-radius: var(--ternlight-chat-radius, 0.75rem);
  background: var(--paper);
  color: var(--ink);
  font: var(--ternlight-chat-font, 1rem/1.5 system-ui, sans-serif);
}
@supports (color: light-dark(#000, #fff)) {
  :host {
    --ink: var(--ternlight-chat-color, light-dark(#14222b, #e6edf0));
    --paper: var(--ternlight-chat-background, light-dark(#fff, #101b22));
    --quiet: var(--ternlight-chat-muted, light-dark(#52636e, #9db0bb));
    --line: var(--ternlight-chat-border, light-dark(#7d8d97, #64798a));
    --accent: var(--ternlight-chat-accent, light-dark(#11587a, #f5b83d));
    --on-accent: var(--ternlight-chat-on-accent, light-dark(#fff, #1b1300));
    --bubble: var(--ternlight-chat-user, light-dark(#e6eef2, #22333e));
    --wrong: var(--ternlight-chat-error, light-dark(#a6201d, #ff9d95));
  }
}
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
[part~="log"] {
  flex: 1;
  min-block-size: 0;
  overflow: hidden auto;
  overscroll-behavior: contain;
  padding: 1rem;
  display: flex;
  flex-direction: column;
  gap: 0.75rem;
}
[part~="message"] { max-inline-size: 100%; overflow-wrap: anywhere; }
[part~="user"] {
  align-self: flex-end;
  max-inline-size: 85%;
  padding: 0.5rem 0.75rem;
  border-radius: 0.75rem;
  background: var(--bubble);
  white-space: pre-wrap;
}
[part~="assistant"] { align-self: stretch; }
[part~="assistant"] > [part~="text"] > :first-child { margin-block-start: 0; }
[part~="assistant"] > [part~="text"] > :last-child { margin-block-end: 0; }
pre { overflow-x: auto; padding: 0.75rem; border-radius: 0.5rem; background: var(--bubble); }
code, pre { font-family: ui-monospace, "Cascadia Code", Menlo, Consolas, monospace; font-size: 0.9em; }
table { display: block; overflow-x: auto; border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.5rem; text-align: start; }
blockquote { margin-inline: 0; padding-inline-start: 0.75rem; border-inline-start: 3px solid var(--line); color: var(--quiet); }
[part~="notice"] { padding: 0.75rem 1rem; border-block-start: 1px solid var(--line); display: grid; gap: 0.5rem; justify-items: start; }
[part~="notice"] p { margin: 0; }
[part~="error"] p { color: var(--wrong); }
details { color: var(--quiet); font-size: 0.875em; max-inline-size: 100%; overflow-wrap: anywhere; }
progress { inline-size: 100%; accent-color: var(--accent); }
form { display: flex; gap: 0.5rem; align-items: flex-end; padding: 0.75rem; border-block-start: 1px solid var(--line); }
textarea {
  flex: 1;
  min-inline-size: 0;
  min-block-size: 2.75rem;
  max-block-size: 9rem;
  padding: 0.5rem 0.75rem;
  resize: none;
  field-sizing: content;
  border: 1px solid var(--line);
  border-radius: 0.5rem;
  background: var(--paper);
  color: inherit;
  font: inherit;
}
textarea::placeholder { color: var(--quiet); opacity: 1; }
button {
  min-block-size: 2.75rem;
  padding: 0.25rem 1rem;
  border: 1px solid var(--accent);
  border-radius: 0.5rem;
  background: var(--accent);
  color: var(--on-accent);
  font: inherit;
  cursor: pointer;
}
button[aria-disabled="true"] { background: none; border-color: var(--line); color: var(--quiet); cursor: default; }
button[part~="stop"], button[part~="cancel"] { background: none; color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
[part~="log"]:focus-visible { outline-offset: -2px; }
.spoken { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
`;
