// What js-glue/index.d.ts declares, beside what there is: the compiler's own view of its types, walked along values.
import path from 'node:path';
import ts from 'typescript';
import { ROOT } from './fixtures.mjs';

const FILE = path.join(ROOT, 'js-glue/index.d.ts');
const options = {
  strict: true, noEmit: true, types: [], lib: ['lib.es2023.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts', 'lib.dom.asynciterable.d.ts'],
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
};
const program = ts.createProgram([FILE], options);
const checker = program.getTypeChecker();
const file = program.getSourceFile(FILE);
const exported = new Map(checker.getExportsOfModule(checker.getSymbolAtLocation(file)).map((symbol) => [symbol.name, symbol]));

const isOurs = (symbol) => symbol?.declarations?.some((node) => node.getSourceFile() === file) ?? false;
const isValue = (symbol) => (symbol.flags & ts.SymbolFlags.Value) !== 0;

/** Names of the functions, classes and constants that the package offers. */
export const declaredValues = [...exported.values()].filter(isValue).map(({ name }) => name);

/** The strings that a declared union consists of. */
export function declaredStrings(name) {
  return checker.getDeclaredTypeOfSymbol(exported.get(name)).types.filter((type) => type.isStringLiteral()).map(({ value }) => value);
}

/** Those with names that are texts. */
const propertiesOf = (type) => checker.getPropertiesOfType(type).filter(({ name }) => !name.startsWith('__@'));

/** Where a property that some value had is declared. */
const seen = new Set();

/** Properties of an interface that no value so far had. */
export function unseen(name) {
  const properties = propertiesOf(checker.getDeclaredTypeOfSymbol(exported.get(name)));
  return properties.filter(({ declarations }) => !seen.has(declarations[0])).map((property) => property.name);
}

/** What of a value is not as the exported type of that name says: nothing, or texts. */
export function declaredFaults(name, value) {
  return faults(checker.getDeclaredTypeOfSymbol(exported.get(name)), value, name);
}

/** The same for what a declared function's promise resolves to, or it returns. */
export function returnedFaults(name, value) {
  const [signature] = checker.getTypeOfSymbol(exported.get(name)).getCallSignatures();
  const type = signature.getReturnType();
  return faults(checker.getAwaitedType(type) ?? type, value, `${name}()`);
}

const PRIMITIVES = [
  [ts.TypeFlags.String, 'string'], [ts.TypeFlags.Number, 'number'], [ts.TypeFlags.Boolean, 'boolean'], [ts.TypeFlags.BigInt, 'bigint'],
  [ts.TypeFlags.Undefined, 'undefined'], [ts.TypeFlags.Void, 'undefined'],
];

function faults(type, value, at) {
  const { flags } = type;
  if (flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) return [];
  if (type.isUnion()) {
    const all = type.types.map((one) => faults(one, value, at));
    return all.some((list) => list.length === 0) ? [] : all.sort((a, b) => a.length - b.length)[0];
  }
  const unlike = [`${at} is ${shown(value)}, and not ${checker.typeToString(type)}`];
  if (flags & ts.TypeFlags.Null) return value === null ? [] : unlike;
  if (type.isStringLiteral() || type.isNumberLiteral()) return value === type.value ? [] : unlike;
  if (flags & ts.TypeFlags.BooleanLiteral) return String(value) === checker.typeToString(type) && typeof value === 'boolean' ? [] : unlike;
  for (const [flag, name] of PRIMITIVES)
    if (flags & flag) return typeof value === name && !Number.isNaN(value) ? [] : unlike;
  if (type.getCallSignatures().length > 0) return typeof value === 'function' ? [] : unlike;
  if (typeof value !== 'object' || value === null) return unlike;
  if (checker.isArrayType(type)) {
    const [item] = checker.getTypeArguments(type);
    return Array.isArray(value) ? value.flatMap((one, i) => faults(item, one, `${at}[${i}]`)) : unlike;
  }
  const builtIn = type.symbol && !isOurs(type.symbol) && globalThis[type.symbol.name];
  if (typeof builtIn === 'function') return value instanceof builtIn ? [] : unlike;
  return objectFaults(type, value, at);
}

function objectFaults(type, value, at) {
  const out = [];
  const properties = propertiesOf(type);
  for (const property of properties) {
    const there = property.name in value;
    if (there) seen.add(property.declarations?.[0]);
    if (there) out.push(...faults(checker.getTypeOfSymbol(property), value[property.name], `${at}.${property.name}`));
    else if (!(property.flags & ts.SymbolFlags.Optional)) out.push(`${at}.${property.name} is declared and missing`);
  }
  const names = new Set(properties.map(({ name }) => name));
  const rest = checker.getIndexInfosOfType(type)[0]?.type;
  for (const name of offered(value)) {
    if (names.has(name)) continue;
    if (rest) out.push(...faults(rest, value[name], `${at}.${name}`));
    else out.push(`${at}.${name} is there and not declared`);
  }
  return out;
}

/** Own properties, and the methods of a class. */
function offered(value) {
  const names = Object.keys(value);
  for (let from = Object.getPrototypeOf(value); from && from !== Object.prototype && from !== Error.prototype; from = Object.getPrototypeOf(from))
    names.push(...Object.getOwnPropertyNames(from).filter((name) => name !== 'constructor'));
  return names;
}

function shown(value) {
  const text = typeof value === 'function' ? 'a function' : JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}

/**
 * What the compiler has against these texts, as modules that import the package: nothing, or texts.
 * @param {Record<string, string>} texts by the name of a file, .js or .ts
 */
export function typeFaults(texts) {
  const files = new Map(Object.entries(texts).map(([name, text]) => [path.join(ROOT, 'js-glue', name), text]));
  const strict = { ...options, types: ['node'], allowJs: true, checkJs: true, paths: { lineal: [FILE] }, skipLibCheck: true };
  const host = ts.createCompilerHost(strict);
  const { readFile, fileExists, getSourceFile } = host;
  host.readFile = (name) => files.get(path.resolve(name)) ?? readFile.call(host, name);
  host.fileExists = (name) => files.has(path.resolve(name)) || fileExists.call(host, name);
  host.getSourceFile = (name, ...more) => {
    const text = files.get(path.resolve(name));
    return text === undefined ? getSourceFile.call(host, name, ...more) : ts.createSourceFile(name, text, ts.ScriptTarget.ES2022, true);
  };
  host.getCurrentDirectory = () => ROOT;
  const checked = ts.createProgram([...files.keys()], strict, host);
  return ts.getPreEmitDiagnostics(checked).map((d) => {
    const where = d.file ? `${path.basename(d.file.fileName)}:${d.file.getLineAndCharacterOfPosition(d.start ?? 0).line + 1}: ` : '';
    return where + ts.flattenDiagnosticMessageText(d.messageText, ' ');
  });
}
