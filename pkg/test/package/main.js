import { program } from "./program.js";

const output = document.querySelector("output");
program("./model/").then(
  (printed) => (output.textContent = printed),
  (error) => (output.textContent = `failed: ${error}\n${error.stack}`),
);
