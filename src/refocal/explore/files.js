"use strict";
// Logits and labels out of a .csv, .tsv or .npz file, read in the page: nothing leaves it.

const files = (() => {
  // The page has no option that names the column of the labels, as commands have: it takes other usual names too.
  const LABELS = ["labels", "label"], OTHER_LABELS = ["y", "target", "targets"], VALUES = ["logits", "probabilities"];
  // A single column for two classes.
  const PROBABILITY = ["p", "prob", "proba", "probability"], LOG_ODDS = ["logit", "log_odds"];
  const fail = (text) => { throw new Error(text); };

  // Which of some names is that of the labels; undefined if none is.
  function nameOfLabels(names) {
    const found = [LABELS, OTHER_LABELS].map((usual) => usual.filter((name) => names.includes(name))).find((each) => each.length) ?? [];
    if (found.length > 1) fail(`The labels may be ${found.join(" or ")}; leave one of them in the file.`);
    return found[0];
  }

  // The members of a zip archive by name; sizes come from its central directory, at the end of the file.
  async function unzip(buffer) {
    const view = new DataView(buffer), found = new Map();
    let end = buffer.byteLength - 22;
    while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
    if (end < 0) fail("This is not a .npz file: the end of an archive is missing.");
    let at = view.getUint32(end + 16, true);
    for (let i = view.getUint16(end + 10, true); i > 0; i--) {
      if (view.getUint32(at, true) !== 0x02014b50) fail("The .npz file is damaged.");
      const [method, size, start] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint32(at + 42, true)];
      const [name, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true));
      const key = new TextDecoder().decode(new Uint8Array(buffer, at + 46, name));
      const first = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
      const bytes = buffer.slice(first, first + size);
      const inflated = () => new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
      found.set(key.replace(/\.npy$/, ""), method === 8 ? await inflated() : method === 0 ? bytes : fail("An unknown compression."));
      at += 46 + name + extra + comment;
    }
    return found;
  }

  const half = (bits) => { // float16
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  };
  const KINDS = {
    f2: Uint16Array, f4: Float32Array, f8: Float64Array, b1: Uint8Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array,
    i1: Int8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array,
  };

  // An array of a .npy member as plain numbers, with its shape.
  function array(buffer) {
    const view = new DataView(buffer), wide = view.getUint8(6) > 1, start = wide ? 12 : 10;
    const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
    const head = new TextDecoder("latin1").decode(new Uint8Array(buffer, start, length));
    const dtype = /'descr': '([<|=])(\w\d)'/.exec(head), shape = /'shape': \(([^)]*)\)/.exec(head);
    if (!dtype || !shape || !KINDS[dtype[2]]) return null; // text, or another order of bytes
    const sizes = shape[1].split(",").filter((s) => s.trim()).map(Number), count = sizes.reduce((a, b) => a * b, 1);
    const values = Float64Array.from(new KINDS[dtype[2]](buffer.slice(start + length), 0, count), dtype[2] === "f2" ? half : Number);
    return { values, shape: sizes, columnsFirst: /'fortran_order': True/.test(head) };
  }

  // The entries of a one-dimensional array of text (UTF-32) or of numbers, as text.
  function textsOf(buffer, name) {
    const head = new TextDecoder("latin1").decode(new Uint8Array(buffer, 0, Math.min(buffer.byteLength, 200)));
    const width = /'descr': '<U(\d+)'/.exec(head), shape = /'shape': \((\d+),\)/.exec(head);
    if (!width || !shape) {
      const numbers = array(buffer);
      return numbers ? [...numbers.values].map(String) : fail(`The ${name} must be text or numbers.`);
    }
    const start = 10 + new DataView(buffer).getUint16(8, true), letters = new Uint32Array(buffer.slice(start)), n = Number(width[1]);
    const text = (i) => String.fromCodePoint(...letters.subarray(i * n, (i + 1) * n)).replace(/\0+$/, "");
    return Array.from({ length: Number(shape[1]) }, (_, i) => text(i));
  }

  async function fromNpz(buffer) {
    const members = await unzip(buffer);
    const pick = (names) => names.find((name) => members.has(name));
    const scores = pick(VALUES), truth = nameOfLabels([...members.keys()]);
    if (VALUES.every((name) => members.has(name))) fail("The .npz file holds logits and probabilities; leave one of them in it.");
    if (!scores || !truth) fail(`The .npz file must hold the arrays logits and labels. It holds ${[...members.keys()].join(", ")}.`);
    const values = array(members.get(scores)) ?? fail(`The ${scores} must be numbers.`);
    const [n, classes] = values.shape;
    if (values.shape.length !== 2 || classes < 2) fail("The logits must be of shape (rows, classes).");
    const labels = textsOf(members.get(truth), truth);
    if (labels.length !== n) fail(`There are ${n} rows of logits and ${labels.length} labels.`);
    const at = values.columnsFirst ? (i, j) => j * n + i : (i, j) => i * classes + j;
    const rows = Array.from({ length: n }, (_, i) => Array.from({ length: classes }, (_, j) => values.values[at(i, j)]));
    const names = members.has("class_names") ? textsOf(members.get("class_names"), "class_names") : null;
    if (names && names.length !== classes) fail(`There are ${classes} columns of logits and ${names.length} class_names.`);
    const missing = labels.findIndex((label) => label === "" || label === "NaN");
    if (missing >= 0) fail(`The label of row ${missing} is missing.`);
    const odd = labels.find((label) => Number.isNaN(Number(label)));
    if (!names && odd !== undefined) fail(`The label ${odd} is a name: list the names of all classes in an array class_names.`);
    return { rows, labels: names ? columnNumbers(labels, names) : labels.map(Number), probabilities: scores === "probabilities" };
  }

  // What a label or a name is compared by: whole numbers are the same however they are written, as 2 and 2.0, and truths
  // are 1 and 0.
  const TRUTHS = { true: "1", false: "0" };
  const key = (text) => TRUTHS[text.toLowerCase()] ?? (text !== "" && Number.isFinite(Number(text)) ? String(Number(text)) : text);
  // Beginnings of names that say that columns are scores, of which p_ and prob_ say that they are probabilities.
  const SCORES = /^(logits?|log_odds|p|probs?|proba|probability|probabilities|scores?|class)([_.: ]|(?=\d+$))/i;

  // Which columns are classes, by the rules of refocal.io: {places, names, probabilities}.
  function classColumns(heads, table, labels) {
    const places = [...heads.keys()];
    const beginnings = places.map((j) => SCORES.exec(heads[j])?.[0]);
    const alike = places.filter((j) => beginnings[j] !== undefined && beginnings.filter((other) => other === beginnings[j]).length > 1);
    if (alike.length) {
      const start = beginnings[alike[0]];
      if (alike.some((j) => beginnings[j] !== start)) fail(`The columns begin with ${[...new Set(alike.map((j) => beginnings[j]))].join(" and ")}; leave one kind of scores in the file.`);
      return { places: alike, names: alike.map((j) => heads[j].slice(start.length)), probabilities: /^p/i.test(start) };
    }
    const known = new Set(labels.map(key));
    const called = places.filter((j) => known.has(key(heads[j])) || /^\d+$/.test(heads[j]));
    const isOther = (j) => table.every((row) => !(Number(row[j]) % 1)); // text, whole numbers: as ids and ages are
    const isNumbered = heads.every((head) => /^\D+\d+$/.test(head)); // a2, a0, a1: the numbers, not the places, may be meant
    // Labels 0 and 1 count any two columns, also a score and an age; whole numbers beside others are rather an age.
    const isParted = (j) => !isOther(j) || table.every((row) => Number(row[j]) === 0);
    const areAlike = places.every(isParted) || !places.some(isParted);
    const counted = places.length > 2 && areAlike && known.size === places.length && places.every((j) => known.has(String(j)) && (!isNumbered || heads[j] === heads[0].replace(/\d+$/, j)));
    const chosen = called.length > 1 && places.every((j) => called.includes(j) || isOther(j)) ? called : counted ? places : null;
    if (!chosen) fail(`Which of the columns ${heads.join(", ")} are classes? Call them logit_cat, logit_dog, or p_cat, p_dog if they are probabilities.`);
    return { places: chosen, names: chosen.map((j) => heads[j]), probabilities: false };
  }

  // The number in each name, where names differ in it alone, as c1 and c2 do, or P(True) and P(False).
  function numbersWithin(names) {
    const whole = String.raw`(?<!\d)(?<!\d\.)\d+(?:\.0*)?(?!\.?\d)|true|false`;
    for (const number of [new RegExp(whole, "gi"), new RegExp(`[+-]?(?:${whole})`, "gi")]) {
      const beside = (name, at) => JSON.stringify([name.slice(0, at.index), name.slice(at.index + at[0].length)]);
      const texts = names.map((name) => new Map([...name.matchAll(number)].map((at) => [beside(name, at), key(at[0])])));
      const shared = [...texts[0].keys()].filter((text) => texts.every((other) => other.has(text)));
      if (shared.length === 1) return texts.map((text) => text.get(shared[0]));
    }
    return [];
  }

  // Labels are names of columns, if all are; column numbers, if none is and all are whole numbers from 0.
  function columnNumbers(labels, names) {
    const column = new Map(names.map((name, j) => [key(name), j])), keys = labels.map(key);
    if (column.size < names.length) fail(`Two of the classes ${names.join(", ")} have the same name.`);
    const named = keys.filter((each) => column.has(each)).length;
    if (named === keys.length) return keys.map((each) => column.get(each));
    const odd = keys.findIndex((each) => !column.has(each) && (named > 0 || !Number.isInteger(Number(each))));
    if (odd >= 0) fail(`The label of row ${odd} must be one of ${names.join(", ")}. Got ${labels[odd]} instead.`);
    // 1 may be c1, or c2 counted from 0.
    const within = numbersWithin(names);
    const twofold = keys.find((each) => names[each] !== undefined && within[each] !== each);
    if (twofold !== undefined && keys.every((each) => within.includes(each))) fail(`The label ${twofold} may be a name of ${names.join(", ")} or a column number; write the names.`);
    return keys.map(Number);
  }

  // One number per row is about class 1 of two.
  function ofTwoClasses(head, scores, labels) {
    const probabilities = PROBABILITY.includes(head.toLowerCase());
    const bad = scores.findIndex((score, i) => Number.isNaN(score) || !["0", "1"].includes(key(labels[i])));
    if (bad >= 0) fail(`Line ${bad + 2} does not hold a number ${head} and a label 0 or 1.`);
    const rows = scores.map((score) => (probabilities ? [1 - score, score] : [0, score]));
    return { rows, labels: labels.map((label) => Number(key(label))), probabilities };
  }

  function fromText(text, separator) {
    const lines = text.split(/\r?\n/).filter((line) => line.trim());
    const cells = (line) => line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
    const heads = cells(lines[0] ?? ""), lower = heads.map((head) => head.toLowerCase());
    const at = lower.indexOf(nameOfLabels(lower));
    const needed = "A text file needs a line of names, a column for each class and a column label.";
    if (at < 0 || lines.length < 2) fail(needed);
    if (new Set(heads).size < heads.length) fail("Two columns have the same name.");
    const table = lines.slice(1).map(cells);
    const uneven = table.findIndex((row) => row.length !== heads.length);
    if (uneven >= 0) fail(`Line ${uneven + 2} has ${table[uneven].length} of ${heads.length} cells.`);
    const labels = table.map((row) => row.splice(at, 1)[0]);
    heads.splice(at, 1);
    const number = (cell) => (cell === "" ? NaN : cell.toLowerCase() === "-inf" ? -Infinity : Number(cell)); // as Python writes it
    const single = heads.findIndex((head) => [...PROBABILITY, ...LOG_ODDS].includes(head.toLowerCase()));
    // Beside other letters p is a class where labels are called by them.
    const areLetters = heads.length > 1 && heads.every((head) => head.length === 1) && labels.every((label) => heads.map(key).includes(key(label)));
    if (single >= 0 && !areLetters) return ofTwoClasses(heads[single], table.map((row) => number(row[single])), labels);
    if (heads.length < 2) fail(needed);
    const { places, names, probabilities } = classColumns(heads, table, labels);
    const rows = table.map((row) => places.map((j) => number(row[j])));
    const bad = rows.findIndex((row, i) => row.some(Number.isNaN) || labels[i] === "");
    if (bad >= 0) fail(`Line ${bad + 2} does not hold ${names.length} numbers and a label.`);
    return { rows, labels: columnNumbers(labels, names), probabilities };
  }

  // Scores must be of the kind that their names say.
  function checkKind(rows, probabilities) {
    const areProbabilities = (row) => row.every((p) => p >= 0 && p <= 1.001) && Math.abs(row.reduce((a, b) => a + b, 0) - 1) <= 1e-3;
    const odd = rows.findIndex((row) => !areProbabilities(row));
    if (probabilities && odd >= 0) fail(`The probabilities of row ${odd} must be at least 0 and sum to 1.`);
    if (!probabilities && odd < 0) fail("All rows look like probabilities: call the columns p_cat, p_dog, or the array probabilities.");
  }

  async function read(file) {
    const ending = file.name.toLowerCase().split(".").pop();
    const found = ending === "npz" ? await fromNpz(await file.arrayBuffer())
      : ["csv", "tsv", "txt"].includes(ending) ? fromText(await file.text(), ending === "tsv" ? "\t" : ",") : fail("Give a .csv, .tsv or .npz file.");
    const classes = found.rows[0].length;
    const odd = found.labels.findIndex((label) => !Number.isInteger(label) || label < 0 || label >= classes);
    if (odd >= 0) fail(`The label of row ${odd} must be a class from 0 to ${classes - 1}. Got ${found.labels[odd]} instead.`);
    if (found.rows.some((row) => row.some((v) => Number.isNaN(v) || v === Infinity))) fail("The logits must be free of NaN and +inf.");
    if (found.rows.some((row) => row.every((v) => v === -Infinity))) fail("Every row must have a finite logit.");
    checkKind(found.rows, found.probabilities);
    if (found.probabilities) found.rows = found.rows.map((row) => row.map((p) => Math.log(Math.max(p, 1e-16))));
    return { rows: found.rows, labels: found.labels, title: file.name };
  }

  return { read };
})();
