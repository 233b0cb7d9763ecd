// Started only to learn whether this page may have workers at all.
postMessage("here");
