/** Takes up the page that a server has rendered. */
import { version } from "react";
import { hydrateRoot } from "react-dom/client";
import { App } from "./server_app.jsx";

const suspense = new URLSearchParams(location.search).has("suspense");
const root = document.getElementById("root");
Object.assign(globalThis, { version, recovered: [], first: root.querySelector("h1") });
const onRecoverableError = (error) => globalThis.recovered.push(error.message);
hydrateRoot(root, <App source="/model/" suspense={suspense} />, { onRecoverableError });
