/**
 * Conversations, and the sessions that were saved of them, in this browser's IndexedDB. A session is as large as its share of the KV cache,
 * so its size stands beside it: nobody reads a hundred megabytes for a list.
 */

const NAME = "ternlight-chats";
/** Bytes of all saved sessions; the ones that were not used for longest go first. */
export const MAX_SAVED = 512e6;

let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      for (const name of ["conversations", "sessions", "sizes"]) {
        request.result.createObjectStore(name, { keyPath: "id" });
      }
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab holds an older version of the conversations"));
  });
  opened.catch(() => {
    opened = null;
  });
  return opened;
}

/** Runs `work` on the stores, and settles when all of it is written. */
async function run(stores, mode, work) {
  const transaction = (await database()).transaction(stores, mode);
  return new Promise((resolve, reject) => {
    const request = work(...stores.map((name) => transaction.objectStore(name)));
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

/** Conversations, the latest first. */
export const conversations = async () =>
  (await run(["conversations"], "readonly", (store) => store.getAll())).sort((a, b) => b.changed - a.changed);

/**
 * Keeps a conversation, and nothing of one without messages. Where another tab has kept it since it was read here, both stay: this one goes on
 * as another, by a new id.
 *
 * @returns whether it does
 */
export async function keep(conversation) {
  let [apart, before] = [false, {}];
  const write = (store) => {
    const read = store.get(conversation.id);
    read.onsuccess = () => {
      before = { id: conversation.id, stamp: conversation.stamp };
      apart = read.result !== undefined && read.result.stamp !== conversation.stamp;
      if (apart) conversation.id = crypto.randomUUID();
      conversation.stamp = crypto.randomUUID();
      if (conversation.nodes.length > 0) store.put(conversation);
      else store.delete(conversation.id);
    };
  };
  try {
    await run(["conversations"], "readwrite", write);
  } catch (error) {
    Object.assign(conversation, before);
    throw error;
  }
  return apart;
}

export const forget = (id) =>
  run(["conversations", "sessions", "sizes"], "readwrite", (...stores) => {
    for (const store of stores) store.delete(keysOf(id));
  });

/** A conversation's own key, and those of its sessions: `id`, `id 1`, … */
const keysOf = (id) => IDBKeyRange.bound(id, `${id} \uffff`);

/** What the sessions of a conversation are saved under, the latest first. */
export const savedKeys = async (id) =>
  (await run(["sizes"], "readonly", (store) => store.getAll(keysOf(id))))
    .sort((a, b) => b.used - a.used)
    .map((one) => one.id);

/** The saved bytes of a session; undefined where there are none. */
export const savedSession = async (key) => (await run(["sessions"], "readonly", (store) => store.get(key)))?.bytes;

/** What saved sessions take: `{ id, bytes, used }` each. */
export const savedSizes = () => run(["sizes"], "readonly", (store) => store.getAll());

export async function keepSession(id, bytes) {
  const others = (await savedSizes()).filter((one) => one.id !== id).sort((a, b) => b.used - a.used);
  const gone = [];
  let total = bytes.length;
  for (const other of others) {
    total += other.bytes;
    if (total > MAX_SAVED) gone.push(other.id);
  }
  await run(["sessions", "sizes"], "readwrite", (sessions, sizes) => {
    for (const old of gone) for (const store of [sessions, sizes]) store.delete(old);
    sessions.put({ id, bytes });
    sizes.put({ id, bytes: bytes.length, used: Date.now() });
  });
}

export const forgetSession = (id) =>
  run(["sessions", "sizes"], "readwrite", (...stores) => {
    for (const store of stores) store.delete(id);
  });

export const forgetSessions = () =>
  run(["sessions", "sizes"], "readwrite", (...stores) => {
    for (const store of stores) store.clear();
  });

export const forgetAll = () =>
  run(["conversations", "sessions", "sizes"], "readwrite", (...stores) => {
    for (const store of stores) store.clear();
  });
