// What source-suite.mjs is given: a small model, whole, in three parts, cut short, and a page or nothing in its place.
import { open } from '../../js-glue/index.js';
import { ggufBytes, tinyLlama } from './gguf-write.mjs';

const IDS = [1, 5, 9, 23, 77, 101];

/** The model in so many parts, as llama.cpp names and numbers them. */
function splitModel(model, count) {
  const each = Math.ceil(model.tensors.length / count);
  return Array.from({ length: count }, (_, i) => ({
    name: `m-${String(i + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}.gguf`,
    bytes: ggufBytes({
      ...model,
      metadata: [
        ...(i === 0 ? model.metadata : []),
        ['split.no', 'u16', i], ['split.count', 'u16', count], ['split.tensors.count', 'i32', model.tensors.length],
      ],
      tensors: model.tensors.slice(i * each, (i + 1) * each),
    }),
  }));
}

/** { ids, tokens, file, parts, cut, page, empty }: files are { name, bytes }. */
export async function sourceModels() {
  const model = tinyLlama({ n_layer: 4, d_model: 128, n_head: 4, d_ff: 512, n_vocab: 512, n_ctx: 64 });
  const bytes = ggufBytes(model);
  const opened = await open(new Uint8Array(bytes), { context: 64 });
  const { tokens } = await opened.generate(IDS, { maxTokens: 6, ignoreEos: true }).done;
  await opened.close();
  return {
    ids: IDS,
    tokens,
    file: { name: 'm.gguf', bytes },
    parts: splitModel(model, 3),
    cut: { name: 'cut.gguf', bytes: bytes.subarray(0, bytes.length - 100_000) },
    page: { name: 'page.gguf', bytes: Buffer.from(`<!doctype html><title>Sign in</title>${' '.repeat(5000)}`) },
    empty: { name: 'empty.gguf', bytes: Buffer.alloc(0) },
  };
}

export const allFiles = ({ file, parts, cut, page, empty }) => [file, ...parts, cut, page, empty];
