// Images of device code, and objects that were never destroyed.

function imagesView({ facts: { summary, kernels } }) {
  const shownName = new Map(kernels.map(({ name, shown }) => [name, shown]));
  const table = new SortedTable({
    caption: "Images",
    rows: summary.images,
    none: "The program loaded no image.",
    detail: (row) =>
      row.kernels.length === 0
        ? element("p", { class: "none" }, row.problem ?? "No kernel is listed in this image.")
        : element(
            "ul",
            { class: "frames" },
            row.kernels.slice(0, 500).map((name) => element("li", {}, shownName.get(name) ?? name)),
            row.kernels.length > 500
              ? element("li", { class: "dim" }, `and ${count(row.kernels.length - 500)} more`)
              : null,
          ),
    columns: [
      { title: "Image", class: "short", value: (row) => row.image, cell: (row) => row.image },
      { title: "For", cell: (row) => row.targets.join(", ") || "–" },
      {
        title: "Kernels",
        right: true,
        value: (row) => row.kernels.length,
        cell: (row) => count(row.kernels.length),
      },
      { title: "Size", right: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
      {
        title: "Entries",
        right: true,
        value: (row) => row.entries,
        cell: (row) => count(row.entries),
      },
      { title: "Uses", right: true, value: (row) => row.uses, cell: (row) => count(row.uses) },
      {
        title: "First used by",
        class: "short",
        value: (row) => row.call,
        cell: (row) => [callLink(row.call), " ", element("code", {}, row.function)],
      },
      ...(summary.images.some(({ problem }) => problem)
        ? [{ title: "Problem", class: "text", cell: (row) => row.problem ?? "" }]
        : []),
    ],
  });
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "Images"),
    element(
      "p",
      { class: "about" },
      "Device code that calls loaded or linked, each once. ",
      element("code", {}, `cutape extract ${summary.trace.path} --images DIR`),
      " writes them to files.",
    ),
    table.node,
    summary.images_not_kept
      ? element(
          "p",
          { class: "dim" },
          `${counted(summary.images_not_kept, "use")} of images whose bytes the trace lacks.`,
        )
      : null,
  );
}

function leaksView({ trace }) {
  const { objects } = trace;
  const leaked = Array.from({ length: objects.length }, (_, object) => object).filter((object) =>
    objects.isLeaked(object),
  );
  const groups = new Map();
  for (const object of leaked) {
    const by = trace.nameOf(objects.created[object]);
    const key = `${objects.name(object)} ${by}`;
    const group = groups.get(key) ?? { kind: objects.name(object), by, objects: [], bytes: 0 };
    group.objects.push(object);
    group.bytes += objects.bytes[object];
    groups.set(key, group);
  }
  const table = new SortedTable({
    caption: "Objects that were never destroyed",
    rows: [...groups.values()],
    sort: { column: 2, descending: true },
    none: "The program destroyed all that it created.",
    detail: (group) => leakedObjects(trace, group).node,
    columns: [
      { title: "Kind", value: (row) => row.kind, cell: (row) => row.kind },
      { title: "Created by", class: "name", value: (row) => row.by, cell: (row) => row.by },
      {
        title: "Objects",
        right: true,
        value: (row) => row.objects.length,
        cell: (row) => count(row.objects.length),
      },
      {
        title: "Bytes",
        right: true,
        value: (row) => row.bytes,
        cell: (row) => (row.bytes ? bytes(row.bytes) : "–"),
      },
      {
        title: "First",
        right: true,
        value: (row) => objects.created[row.objects[0]],
        cell: (row) => callLink(objects.created[row.objects[0]]),
      },
      {
        title: "Last",
        right: true,
        value: (row) => objects.created[row.objects.at(-1)],
        cell: (row) => callLink(objects.created[row.objects.at(-1)]),
      },
    ],
  });
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "Never destroyed"),
    element(
      "p",
      { class: "about" },
      "Objects that calls created and none destroyed before the trace ended, by the function " +
        "that created them. The driver frees them when the process ends; a number that grows " +
        "with the run time is a leak.",
    ),
    table.node,
  );
}

function leakedObjects(trace, group) {
  const { objects } = trace;
  return new SortedTable({
    caption: `${group.kind} objects created by ${group.by}`,
    rows: group.objects,
    columns: [
      { title: "Handle", class: "name", cell: (row) => objects.handle(row) },
      {
        title: "Created by call",
        right: true,
        value: (row) => objects.created[row],
        cell: (row) => callLink(objects.created[row]),
      },
      {
        title: "At",
        right: true,
        value: (row) => objects.created[row],
        cell: (row) => exact(trace, trace.time[objects.created[row]]),
      },
      {
        title: "Thread",
        right: true,
        value: (row) => trace.thread[objects.created[row]],
        cell: (row) => trace.thread[objects.created[row]],
      },
      {
        title: "Bytes",
        right: true,
        value: (row) => objects.bytes[row],
        cell: (row) => (objects.bytes[row] ? bytes(objects.bytes[row]) : "–"),
      },
    ],
  });
}
