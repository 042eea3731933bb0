// Azurite takes `startFrom` of List Blobs and lists from the beginning all the same (Azure/Azurite, issue 2619), which
// delta-rs takes for a broken table. Loaded before it, this lists as the service is documented to: from that name on.
const path = require("path");
const handlers = path.join(process.env.AZURITE_BLOB, "handlers", "ContainerHandler");
const prototype = require(handlers).default.prototype;

for (const name of ["listBlobFlatSegment", "listBlobHierarchySegment"]) {
  const list = prototype[name];
  prototype[name] = async function (...given) {
    const context = given[given.length - 1];
    const options = given[given.length - 2];
    const from = context.request.getQuery("startFrom");
    if (!from) return list.apply(this, given);
    // A marker is the last name that was listed: every name from `from` on is greater than this one.
    options.marker = options.marker || from.slice(0, -1);
    const answer = await list.apply(this, given);
    answer.segment.blobItems = answer.segment.blobItems.filter((item) => (item.name.content || item.name) >= from);
    return answer;
  };
}

// A distant storage: every request is begun so much later.
const latency = Number(process.env.AZURITE_LATENCY_MS || 0);
if (latency) {
  const server = require("http").Server.prototype;
  const emit = server.emit;
  server.emit = function (event, ...given) {
    if (event !== "request") return emit.call(this, event, ...given);
    setTimeout(() => emit.call(this, event, ...given), latency);
    return true;
  };
}
