#!/usr/bin/env node
// The command line: `lineal COMMAND MODEL [options]`. Exit codes: 0 done,
// 1 error, 2 the model does not fit, 130 interrupted.
import { COMMANDS } from './cli-commands.js';
import { commandHelp, inFlags, parseCommand, usage } from './cli-options.js';
import { outputError } from './cli-output.js';
import { LinealError, version } from './index.js';

const EXIT = { ok: 0, error: 1, doesNotFit: 2, interrupted: 130 };

function overallHelp() {
  const rows = Object.entries(COMMANDS).map(
    ([name, { usage: how, summary }]) => `  lineal ${name} ${how}\n      ${summary}`,
  );
  return `lineal ${version}: run GGUF language models in WebAssembly, every byte accounted for\n\n${rows.join('\n')}\n
  lineal COMMAND --help    the options of a command
  lineal --version

MODEL is a GGUF file, a URL or hf:owner/repo/file.gguf; of a split model, its first part.
Exit codes: 0 done, 1 error, 2 the model does not fit, 130 interrupted.
`;
}

/** @param {string} name */
function commandNamed(name) {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  throw usage(`there is no command '${name}'`, `the commands are ${Object.keys(COMMANDS).join(', ')}`);
}

/** @param {string[]} argv */
async function main(argv) {
  const [name, ...rest] = argv;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    const asked = name === 'help' ? rest[0] : undefined;
    process.stdout.write(asked === undefined ? overallHelp() : commandHelp(asked, commandNamed(asked)));
    return name === undefined ? EXIT.error : EXIT.ok;
  }
  if (name === '--version' || name === '-V') {
    process.stdout.write(`${version}\n`);
    return EXIT.ok;
  }
  const command = commandNamed(name);
  const { source, more, values, help } = parseCommand(name, command.options, rest, command);
  if (help) {
    process.stdout.write(commandHelp(name, command));
    return EXIT.ok;
  }
  const controller = new AbortController();
  // Once: ends cleanly. Twice: the default, at once.
  process.once('SIGINT', () => controller.abort());
  const code = await command.run(source, values, controller.signal, more);
  return controller.signal.aborted ? EXIT.interrupted : code;
}

/** @param {unknown} thrown @param {boolean} json */
function report(thrown, json) {
  const error = inFlags(LinealError.from(thrown));
  if (json) process.stdout.write(`${JSON.stringify({ error })}\n`);
  else
    process.stderr.write(
      `lineal: ${error.code}: ${error.message}\n${error.remedy ? `  ${error.remedy}\n` : ''}`,
    );
  if (error.code === 'ABORTED') return EXIT.interrupted;
  return error.code === 'DOES_NOT_FIT' ? EXIT.doesNotFit : EXIT.error;
}

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error) => {
    // The reader of our output went away (`| head`): nothing is left to do.
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EPIPE') process.exit(EXIT.ok);
    // No more to stdout, not even in JSON: it would fail again.
    if (stream === process.stdout) report(outputError('the standard output', error), false);
    process.exit(EXIT.error);
  });
}

const argv = process.argv.slice(2);
try {
  process.exitCode = await main(argv);
} catch (error) {
  process.exitCode = report(error, argv.includes('--json'));
}
