// What bundlers import, for the reason that bundler.jsx tells.
export * from "./chat-element.js";
