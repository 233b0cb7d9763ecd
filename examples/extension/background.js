/** A click on the button: the page's text goes to the offscreen document, the summary comes back to the page. */

chrome.action.onClicked.addListener(async ({ id: tabId }) => {
  await chrome.action.setBadgeText({ tabId, text: "…" });
  try {
    const target = { tabId };
    const [{ result: text }] = await chrome.scripting.executeScript({ target, func: () => document.body.innerText });
    await openOffscreen();
    const { summary, error } = await chrome.runtime.sendMessage({ to: "offscreen", text });
    await chrome.scripting.executeScript({ target, func: show, args: [summary ?? error] });
  } finally {
    await chrome.action.setBadgeText({ tabId, text: "" });
  }
});

let opening;

/** A service worker ends after some seconds and has no workers of its own: the model lives in a document that stays. */
async function openOffscreen() {
  if (await chrome.offscreen.hasDocument()) return;
  const reasons = [chrome.offscreen.Reason.WORKERS];
  const justification = "Runs the language model";
  opening ??= chrome.offscreen.createDocument({ url: "offscreen.html", reasons, justification }).finally(() => {
    opening = undefined;
  });
  await opening;
}

/** In the page. */
function show(summary) {
  const dialog = document.createElement("dialog");
  dialog.style.cssText = "max-width: 40rem; white-space: pre-wrap";
  dialog.textContent = summary;
  dialog.onclick = dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}
