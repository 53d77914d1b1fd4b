// The machine: what it is, and how busy others kept it while something was timed.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';

/** Processor features that decide which instructions a kernel compiles to. */
const FLAGS = ['avx2', 'fma', 'avx_vnni', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_int8', 'asimddp', 'i8mm', 'sve'];

export function describeMachine() {
  let flags = [];
  try {
    const text = fs.readFileSync('/proc/cpuinfo', 'utf8');
    const have = new Set((/^(?:flags|Features)\s*:(.*)$/m.exec(text)?.[1] ?? '').trim().split(/\s+/));
    flags = FLAGS.filter((flag) => have.has(flag));
    if (flags.includes('avx2') && !flags.includes('avx_vnni')) flags.push('no avx_vnni');
  } catch {
    // no /proc: the model name has to do
  }
  const cpus = os.cpus();
  return {
    cpu: cpuName(cpus), cores: cpus.length, flags, memoryBytes: os.totalmem(), system: os.type(),
  };
}

/** The model name, with family and model number where it names no generation. */
function cpuName(cpus) {
  const name = cpus[0]?.model ?? 'unknown processor';
  try {
    const text = fs.readFileSync('/proc/cpuinfo', 'utf8');
    const field = (key) => new RegExp(`^${key}\\s*: (\\d+)`, 'm').exec(text)?.[1];
    const family = field('cpu family');
    return family ? `${name} (family ${family}, model ${field('model')})` : name;
  } catch {
    return name;
  }
}

export const loadAverage = () => os.loadavg()[0];

/** Bytes that can be allotted now; Infinity where that is not known. */
export function availableMemory() {
  try {
    return Number(/^MemAvailable:\s+(\d+)/m.exec(fs.readFileSync('/proc/meminfo', 'utf8'))[1]) * 1024;
  } catch {
    return Infinity;
  }
}

/** What a program prints first, or ''. */
export function firstLine(command, args) {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n')[0].trim();
  } catch {
    return '';
  }
}

// --- processes (empty where there is no /proc) ---------------------------------

/** pid -> {parent, ticks} of every process; ticks of its ended children are counted. */
function processes() {
  const all = new Map();
  for (const name of fs.existsSync('/proc') ? fs.readdirSync('/proc') : []) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = fs.readFileSync(`/proc/${name}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      all.set(Number(name), { parent: Number(fields[1]), ticks: fields.slice(11, 15).reduce((a, t) => a + Number(t), 0) });
    } catch {
      // it ended meanwhile
    }
  }
  return all;
}

/** Processes that this one started itself. */
export function childPids() {
  return [...processes()].filter(([, p]) => p.parent === process.pid).map(([pid]) => pid);
}

function treeOf(root, all) {
  const tree = [root];
  for (let i = 0; i < tree.length; i++) for (const [pid, p] of all) if (p.parent === tree[i]) tree.push(pid);
  return tree;
}

function busyTicks() {
  try {
    const fields = fs.readFileSync('/proc/stat', 'utf8').split('\n')[0].trim().split(/\s+/).slice(1, 9).map(Number);
    return fields.reduce((a, b) => a + b, 0) - fields[3] - fields[4];
  } catch {
    return NaN;
  }
}

/** Starts a watch; the function returned gives how many cores were used by others than this process and `root`'s tree. */
export function watchOthers(root) {
  const own = () => {
    const all = processes();
    const pids = new Set([process.pid, ...(root ? treeOf(root, all) : [])]);
    return [...pids].reduce((sum, pid) => sum + (all.get(pid)?.ticks ?? 0), 0);
  };
  const busy = busyTicks(), mine = own(), start = performance.now();
  return () => {
    const seconds = (performance.now() - start) / 1000;
    const ticks = busyTicks() - busy - (own() - mine);
    return Math.max(0, ticks / 100 / seconds) || 0;
  };
}

/** Peak resident bytes of the largest renderer process of a browser. */
export function rendererPeak(root) {
  let peak = 0;
  for (const pid of treeOf(root, processes())) {
    try {
      if (!fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=renderer')) continue;
      peak = Math.max(peak, Number(/^VmHWM:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024);
    } catch {
      // ended, or another user's
    }
  }
  return peak;
}

/** Gives a tree's threads a high priority, as root; Chromium resets its own, so before each timed section. */
export function raisePriority(root) {
  for (const pid of treeOf(root, processes())) {
    try {
      fs.writeFileSync(`/proc/${pid}/autogroup`, '-19');
    } catch {
      // kernels without grouping by session have no such file
    }
    try {
      for (const thread of fs.readdirSync(`/proc/${pid}/task`)) os.setPriority(Number(thread), -19);
    } catch {
      // not allowed: the watch tells what that cost
    }
  }
}
