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
