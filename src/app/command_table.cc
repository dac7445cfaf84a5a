#include "app/command_table.h"

namespace lariat {
namespace {

constexpr OptionSpec kModelOptions[] = {
    {"models-dir", "DIR", "Where models are looked up by name (default $XDG_DATA_HOME/lariat/models)"},
    {"random-weights", "CONFIG.json", "Instead of MODEL: this config's shape with seeded random weights"},
};

constexpr OptionSpec kLayoutOptions[] = {
    {"ranks", "N", "Ranks that share each request's positions; the same as --layout tp=1,cp=N (default 1)"},
    {"layout", "tp=A,cp=B", "Ranks by axis: tp splits heads and MLP columns, cp splits positions"},
    {"kv", "MODE",
     "striped: each rank keeps its positions; replicated: every rank keeps all (default striped)"},
    {"interleave", "I", "Consecutive positions that stay on one rank (default 1)"},
    {"strategy", "S", "auto, pass_kv or pass_q (default auto)"},
    {"rank-shares", "A,B,..", "Unequal ranks: each rank's share of the positions"},
    {"device", "D", "cpu or auto, or one a rank (default auto)"},
    {"threads", "N", "Threads a rank (default: cores / ranks on this machine)"},
    {"dtype", "T", "Stored type of the weights: auto (the file's), f32 or bf16 (default auto)"},
    {"kv-type", "T", "Type of K and V in the cache: f32, bf16 or f16 (default f32)"},
    {"context", "TOKENS", "Longest context served (default: the model's)"},
    {"kv-memory", "BYTES", "KV memory a rank, as 4G or 512M, or auto (default auto)"},
    {"page-tokens", "N", "Tokens a KV page; rounded up to what the layout needs (default 64 a rank)"},
    {"comm-timeout", "S", "A rank waits this long on a peer (default 10)"},
    {"max-batch", "N", "Sequences in one step at most (default 8)"},
    {"chunk-tokens", "N",
     "New tokens in one step at most, less at depth; 0: the whole prompt (default 512 a cp rank)"},
};

constexpr OptionSpec kServeOptions[] = {
    {"host", "ADDR", "Address to listen on (default 127.0.0.1)"},
    {"port", "PORT", "Port to listen on; 0 picks a free one (default 8080)"},
    {"api-key-file", "FILE", "One accepted API key a line; requests must then carry one"},
    {"stall-timeout", "S",
     "A rank stuck in its own compute this long dumps its stacks and exits 70; with several ranks more than "
     "--comm-timeout (default 300)"},
    {"heartbeat-timeout", "S", "A rank silent this long is killed and replaced (default 3)"},
    {"max-restarts", "N", "Losses in a row without a completed step before requests fail (default 3)"},
    {"request-timeout", "S", "Longest a request may take; 0: no limit (default 0)"},
    {"drain-timeout", "S", "On SIGTERM, how long running requests may finish (default 30)"},
    {"hosts", "H:PORT,..", "Ranks on other hosts (refused in this version)"},
    {"transport", "T", "Data plane between hosts (refused in this version)"},
    {"tls-dir", "DIR", "Certificates for other hosts (refused in this version)"},
    {"token-file", "FILE", "Token for other hosts (refused in this version)"},
    {"interface", "IF", "Network interface for other hosts (refused in this version)"},
    {"data-ports", "LO-HI", "Ports of the data plane (refused in this version)"},
    {"config", "FILE.toml", "Options by flag name; flags win over the file"},
    {"dry-run", nullptr, "Check everything, print the plan and exit"},
};

constexpr OptionSpec kRunOptions[] = {
    {"prompt", "TEXT", "The prompt, as it is: no chat template", 'p'},
    {"file", "FILE", "Read the prompt from a file; - is standard input", 'f'},
    {"max-tokens", "N", "New tokens at most (default: to the context)"},
    {"temperature", "T",
     "Sampling temperature; 0 is greedy (default: the model's generation_config, else 1)"},
    {"seed", "N", "Seed of the draws (default: random)"},
    {"chat", nullptr, "Put the prompt into the model's chat template as a user's message"},
    {"json", nullptr, "One JSON object on standard output"},
};

constexpr OptionSpec kVerifyOptions[] = {
    {"golden", "FILE", "golden.safetensors: input_ids, logits, greedy"},
    {"transport", "T",
     "gloo: ranks are processes, as in serve; local: threads of this process (default: gloo with several "
     "ranks)"},
    {"poison", nullptr, "Fill padding, sink and unowned KV with NaN first"},
    {"json", nullptr, "One JSON object on standard output"},
};

constexpr OptionSpec kBenchOptions[] = {
    {"pp", "N,..", "Prompt lengths to prefill"},
    {"tg", "N", "Tokens to decode (default 0)"},
    {"depth", "N,..", "Resident tokens before decode (default 0)"},
    {"repeat", "N", "Measured repetitions of each (default 3)"},
    {"warmup", "N", "Repetitions before measuring (default 1)"},
    {"json-out", "FILE", "Write the runs as JSON"},
    {"transport", "T",
     "gloo: ranks are processes, also a single one; local: threads of this process (default gloo)"},
};

constexpr OptionSpec kJsonOption[] = {
    {"json", nullptr, "One JSON object on standard output"},
};

constexpr OptionSpec kWorkerOptions[] = {
    {"listen", "ADDR", "Where the head connects, as unix:PATH"},
    {"rank", "N", "This rank"},
    {"epoch", "N", "The group's epoch"},
    {"group-dir", "DIR", "Private folder where the ranks of a head meet"},
    {"parent", "PID", "The head; the worker ends with it"},
    {"stall-timeout", "S", "Stuck in compute this long: dump stacks and exit 70"},
    {"poison", nullptr, "Fill padding, sink and unowned KV with NaN first"},
};

constexpr std::span<const OptionSpec> kServeGroups[] = {kModelOptions, kLayoutOptions, kServeOptions};
constexpr std::span<const OptionSpec> kRunGroups[] = {kModelOptions, kLayoutOptions, kRunOptions};
constexpr std::span<const OptionSpec> kVerifyGroups[] = {kModelOptions, kLayoutOptions, kVerifyOptions};
constexpr std::span<const OptionSpec> kBenchGroups[] = {kModelOptions, kLayoutOptions, kBenchOptions};
constexpr std::span<const OptionSpec> kPlanGroups[] = {kModelOptions, kLayoutOptions, kJsonOption};
constexpr std::span<const OptionSpec> kFileGroups[] = {kModelOptions, kJsonOption};
constexpr std::span<const OptionSpec> kWorkerGroups[] = {kModelOptions, kLayoutOptions, kWorkerOptions};

constexpr CommandSpec kCommands[] = {
    {"serve", "Serve a model over HTTP with OpenAI's API", true, nullptr, kServeGroups,
     "  lariat serve needle-5m\n"
     "  lariat serve ~/models/Qwen3-0.6B --port 9000 --kv-type bf16 --kv-memory 4G\n"
     "  lariat serve ~/models/Llama-3.2-1B-Instruct --context 32768 --dry-run\n"},
    {"run", "Complete one prompt and print the text", true, nullptr, kRunGroups,
     "  lariat run needle-5m --chat -f prompt.txt --max-tokens 32\n"
     "  echo 'Once upon a time' | lariat run ~/models/SmolLM2-135M -f - --temperature 0 --json\n"},
    {"verify", "Compare a model's logits and greedy tokens with a reference", true, nullptr, kVerifyGroups,
     "  lariat verify golden/qwen3-gqa --golden golden/qwen3-gqa/golden.safetensors --chunk-tokens 7 "
     "--poison\n"},
    {"bench", "Measure prefill and decode", true, nullptr, kBenchGroups,
     "  lariat bench needle-5m --pp 512,4096 --tg 64 --depth 0,4096\n"
     "  lariat bench --random-weights bench/shapes/smollm2-135m.json --dtype bf16 --pp 16384 --json-out "
     "out.json\n"},
    {"plan", "What fits: bytes a rank, largest context, refusals with the nearest valid setting", true,
     nullptr, kPlanGroups,
     "  lariat plan ~/models/Llama-3.2-1B --kv-memory 8G\n"
     "  lariat plan needle-5m --context 131072 --json\n"},
    {"tokenize", "Text to token ids", true, "TEXT", kFileGroups,
     "  lariat tokenize needle-5m 'The pass key for thin ship is 76989.' --json\n"},
    {"inspect", "What a model's files say", true, nullptr, kFileGroups,
     "  lariat inspect ~/models/Qwen3-0.6B --json\n"},
    {"worker", "One rank (started by serve)", true, nullptr, kWorkerGroups, "", true},
};

}  // namespace

std::span<const CommandSpec> command_table() {
  return kCommands;
}

}  // namespace lariat
