// Lets Azurite hold many blobs. It goes through all that it has for each request and for each page of a listing, so that
// 15,000 of them bring it to a stand. Loaded before it, this asks the index of names that its database has. What it
// answers stays the same.
const path = require("path");
const persistence = path.join(process.env.AZURITE_BLOB, "persistence");
const lease = (name) => require(path.join(process.env.AZURITE_BLOB, "lease", name)).default;
const { Resultset } = require(require.resolve("lokijs", { paths: [persistence] }));
const store = require(path.join(persistence, "LokiBlobMetadataStore")).default.prototype;

const filter = Resultset.prototype.findAnd;
const named = (part) => "blobName" in part || typeof part.name === "string";
Resultset.prototype.findAnd = Resultset.prototype.$and = function (parts) {
  return filter.call(this, [...parts.filter(named), ...parts.filter((part) => !named(part))]);
};

// Looking for what nobody refers to any more stops all answers for minutes, and a test's server lives no longer.
require(path.join(process.env.AZURITE_BLOB, "gc", "BlobGCManager")).default.prototype.start = async () => {};

const list = store.listBlobs;
store.listBlobs = async function (context, account, container, delimiter, blob, prefix = "", most = 5000, marker = "",
  includeSnapshots, includeUncommitted) {
  // Names that could be numbers have an order of their own in the index.
  if (blob !== undefined || !prefix.includes("/")) return list.apply(this, arguments);
  const { data, binaryIndices } = this.db.getCollection(this.BLOBS_COLLECTION);
  const sorted = binaryIndices.name.values;
  const nameAt = (at) => data[sorted[at]].name;
  const firstAt = (fits) => {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (fits(nameAt(middle))) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const [items, prefixes] = [[], []];
  let last = "";
  let at = firstAt((name) => name >= prefix && name > marker);
  for (; at < sorted.length && nameAt(at).startsWith(prefix); at++) {
    const doc = data[sorted[at]];
    if (doc.accountName !== account || doc.containerName !== container) continue;
    if ((doc.snapshot && !includeSnapshots) || !(doc.isCommitted || includeUncommitted)) continue;
    if (items.length + prefixes.length === most) break;
    const end = delimiter ? doc.name.indexOf(delimiter, prefix.length) + 1 : 0;
    if (end) {
      const folder = doc.name.slice(0, end);
      prefixes.push({ name: folder });
      at = firstAt((name) => name > folder && !name.startsWith(folder)) - 1;
    } else items.push(doc);
    last = nameAt(at);
  }
  const more = at < sorted.length && nameAt(at).startsWith(prefix);
  return [
    items.map((doc) => {
      doc.properties.contentMD5 = this.restoreUint8Array(doc.properties.contentMD5);
      const state = lease("LeaseFactory").createLeaseState(new (lease("BlobLeaseAdapter"))(doc), context);
      return state.sync(new (lease("BlobLeaseSyncer"))(doc));
    }),
    prefixes,
    more ? last : "",
  ];
};
