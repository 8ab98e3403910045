#include "core/recipe/legality.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/model_facts.h"
#include "core/recipe/chunks.h"
#include "core/recipe/compile_rules.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/schedule/schedule.h"
#include "proto/enum_text.h"
#include "proto/errors.h"

namespace legoai::parallel {
namespace {

using Broken = std::optional<Violation>;

constexpr char kTp[] = "parallelism.tensor_parallel_degree";
constexpr char kParts[] = "parallelism.module_fqns_per_model_part";
constexpr char kPp[] = "parallelism.pipeline_parallel_degree";
constexpr char kCp[] = "parallelism.context_parallel_degree";

Violation Fault(const char* field, int64_t value, std::string remedy) {
  return {"", field, absl::StrCat(value), std::move(remedy)};
}

// Whether a tied embedding is on two ranks: not where a V brings the last chunk back to the first one.
bool EndsTalk(const v1::Parallelism& p, const v1::Model& model) {
  return p.pipeline_parallel_degree() > 1 && model.tie_word_embeddings() &&
         PlacementOf(p, model.num_hidden_layers()).RankOfLast() != 0;
}

// Degrees and batches of -1 derived from the others; what cannot be derived is 1 and breaks a rule.
Layout DeriveLayout(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size) {
  const v1::Parallelism& p = recipe.parallelism();
  const v1::Training& t = recipe.training();
  mesh::Mesh mesh{.pp = p.pipeline_parallel_degree(),
                  .dp_replicate = p.data_parallel_replicate_degree(),
                  .dp_shard = p.data_parallel_shard_degree(),
                  .cp = p.context_parallel_degree(),
                  .tp = p.tensor_parallel_degree(),
                  .ends_talk = EndsTalk(p, model),
                  .reshard = std::max<int64_t>(1, p.fsdp_reshard_after_forward_size()),
                  .gathers_beside = p.sequence_parallel_gather_in_backward()};
  // One division at a time: the product of arbitrary degrees may not fit.
  if (mesh.dp_shard == -1) mesh.dp_shard = std::max<int64_t>(1, world_size / mesh.dp_replicate / mesh.cp / mesh.tp / mesh.pp);
  const int64_t local_batch = t.local_batch_size();
  // Where the degrees do not make the world size, the first rule says so; their product need not fit.
  const bool fits = mesh.dp_replicate <= world_size && mesh.dp_shard <= world_size / mesh.dp_replicate;
  const int64_t derived = fits ? local_batch * mesh.dp() : 1;
  return {.world_size = world_size,
          .mesh = mesh,
          .global_batch = t.global_batch_size() == -1 ? derived : t.global_batch_size(),
          .local_batch = local_batch,
          .microbatch_size = mesh.pp > 1 ? p.pipeline_parallel_microbatch_size() : local_batch,
          .seq_len = t.seq_len()};
}

// Loss parallel takes parts of the vocabulary that differ in size; whole logits are gathered from equal ones.
bool CutsVocabularyEvenly(const Candidate& c) { return c.recipe.parallelism().disable_loss_parallel(); }

// Ranks have whole key-value heads each, or several have the same one.
bool SharesKvHeads(int64_t kv_heads, int64_t tp) { return kv_heads % tp == 0 || tp % kv_heads == 0; }
bool EachRankHasTokens(int64_t vocab, int64_t tp) { return (vocab + tp - 1) / tp * (tp - 1) < vocab; }

// The tensor parallel degrees that the model and the sequence allow, ascending: they divide all that is cut.
std::vector<int64_t> DegreesOfModel(const Candidate& c) {
  constexpr int64_t kMostRanks = 1 << 16;
  int64_t common = SplitsTokens(c.recipe.parallelism()) ? c.layout.seq_len : 0;  // gcd(0, n) is n
  for (const int64_t number : {c.model.num_attention_heads(), c.model.intermediate_size()}) {
    common = std::gcd(common, number);
  }
  if (CutsVocabularyEvenly(c)) common = std::gcd(common, c.model.vocab_size());
  std::vector<int64_t> degrees;
  for (int64_t d = 1; d <= std::min(common, kMostRanks); ++d) {
    const bool fits = SharesKvHeads(c.model.num_key_value_heads(), d) && EachRankHasTokens(c.model.vocab_size(), d);
    if (common % d == 0 && fits) degrees.push_back(d);
  }
  return degrees;
}

// Whether no rule is broken with this tensor parallel degree instead, on as many ranks.
bool IsLegalWithTp(const Candidate& c, int64_t degree) {
  v1::Recipe recipe = c.recipe;
  recipe.mutable_parallelism()->set_tensor_parallel_degree(degree);
  const Candidate other{recipe, c.model, DeriveLayout(recipe, c.model, c.layout.world_size)};
  return std::none_of(Rules().begin(), Rules().end(), [&](const Rule& rule) { return rule.check(other).has_value(); });
}

// What to use instead: what all rules take; where none does as all else is, what the model takes.
std::string OfferTp(const Candidate& c) {
  const std::vector<int64_t> degrees = DegreesOfModel(c);
  std::vector<int64_t> legal;
  std::copy_if(degrees.begin(), degrees.end(), std::back_inserter(legal), [&](int64_t d) { return IsLegalWithTp(c, d); });
  if (!legal.empty()) return absl::StrCat("use one of ", absl::StrJoin(legal, ", "));
  return absl::StrCat("use one of ", absl::StrJoin(degrees, ", "), ", with other degrees, batches or ranks");
}

Broken DegreesMatchWorldSize(const Candidate& c) {
  int64_t left = c.layout.world_size;
  const mesh::Mesh& mesh = c.layout.mesh;
  for (const int64_t degree : {mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) {
    if (left % degree != 0) left = 0;  // stays 0
    left /= degree;
  }
  if (left == 1) return {};
  const auto& p = c.recipe.parallelism();
  return Violation{"", "parallelism",
                   absl::StrCat("data_parallel_replicate_degree ", p.data_parallel_replicate_degree(),
                                " x data_parallel_shard_degree ", p.data_parallel_shard_degree(),
                                mesh.cp > 1 ? absl::StrCat(" x context_parallel_degree ", mesh.cp) : "",
                                " x tensor_parallel_degree ", mesh.tp, " x pipeline_parallel_degree ", mesh.pp),
                   absl::StrCat("must multiply to the number of ranks, ", c.layout.world_size,
                                ": data_parallel_shard_degree = -1 derives the shard degree if the others divide it")};
}

// The rule that tp divides something of the model.
Broken TpDivides(const Candidate& c, int64_t number, const char* what) {
  if (number % c.layout.mesh.tp == 0) return {};
  return Fault(kTp, c.layout.mesh.tp, absl::StrCat("must divide the model's ", number, " ", what, ": ", OfferTp(c)));
}
Broken TpDividesHeads(const Candidate& c) { return TpDivides(c, c.model.num_attention_heads(), "attention heads"); }
Broken TpDividesKvHeads(const Candidate& c) {
  const int64_t kv_heads = c.model.num_key_value_heads(), tp = c.layout.mesh.tp;
  if (SharesKvHeads(kv_heads, tp)) return {};
  return Fault(kTp, tp,
               absl::StrCat("must divide the model's ", kv_heads, " key-value heads, or be a multiple of them: ", OfferTp(c)));
}
Broken TpDividesIntermediate(const Candidate& c) {
  return TpDivides(c, c.model.intermediate_size(), "feed-forward channels (intermediate_size)");
}
Broken TpDividesVocab(const Candidate& c) {
  const int64_t vocab = c.model.vocab_size(), tp = c.layout.mesh.tp;
  if (CutsVocabularyEvenly(c))
    return TpDivides(c, vocab, "tokens of vocabulary, since disable_loss_parallel gathers whole logits");
  if (EachRankHasTokens(vocab, tp)) return {};
  return Fault(kTp, tp, absl::StrCat("leaves ranks without any of the model's ", vocab, " tokens of vocabulary: ", OfferTp(c)));
}

// Sequence parallel cuts the sequence between the blocks.
Broken TpDividesSequence(const Candidate& c) {
  if (c.layout.seq_len % c.layout.mesh.tp == 0 || !SplitsTokens(c.recipe.parallelism())) return {};
  return Fault(
      "training.seq_len", c.layout.seq_len,
      absl::StrCat("must be a multiple of tensor_parallel_degree, ", c.layout.mesh.tp, ", which also cuts the sequence"));
}

// Each rank has as long a part of every sequence, or two with head-tail parts, and tensor parallel cuts each of these again.
Broken CpDividesSequence(const Candidate& c) {
  const int64_t cp = c.layout.mesh.cp, seq = c.layout.seq_len, tp = SplitsTokens(c.recipe.parallelism()) ? c.layout.mesh.tp : 1;
  if (cp == 1) return {};
  const bool head_tail = c.recipe.parallelism().context_parallel_load_balancer() == v1::BALANCE_HEAD_TAIL;
  const int64_t parts = (head_tail ? 2 : 1) * cp * tp;  // degrees make the world size, so their product fits
  if (seq % parts == 0) return {};
  return Fault("training.seq_len", seq,
               absl::StrCat("must be a multiple of ", parts, ", ", head_tail ? "2 x " : "", "context_parallel_degree ", cp,
                            tp > 1 ? absl::StrCat(" x tensor_parallel_degree ", tp) : "", ": use ",
                            std::max<int64_t>(1, seq / parts) * parts));
}

// Blocks of attention are merged by their log-sum-exp, which materialized scores have none of.
Broken CpGathersKeys(const Candidate& c) {
  const v1::ContextParallelRotation method = c.recipe.parallelism().context_parallel_rotate_method();
  const bool gathers = method == v1::CONTEXT_PARALLEL_ROTATION_UNSPECIFIED || method == v1::ROTATE_BY_ALL_GATHER;
  if (c.layout.mesh.cp == 1 || gathers || !model::MaterializesScores(c.model)) return {};
  const double cap = c.model.attn_logit_softcapping();
  const std::string what = cap > 0 ? absl::StrCat("capped scores, attn_logit_softcapping = ", cap)
                                   : absl::StrCat("dropout of attention's probabilities, attn_pdrop = ", c.model.attn_pdrop());
  return Violation{
      "", "parallelism.context_parallel_rotate_method", EnumText(method),
      absl::StrCat("cannot go with the model's ", what, ", for which all keys of a query must be there: use \"allgather\"")};
}

Broken SequenceWithinPositions(const Candidate& c) {
  if (c.model.architecture() != v1::GPT2 || c.layout.seq_len <= c.model.max_position_embeddings()) return {};
  return Fault(
      "training.seq_len", c.layout.seq_len,
      absl::StrCat("must be at most ", c.model.max_position_embeddings(), ": the model learned a vector for each position"));
}

// Context parallel puts its own attention in the place of the model's, which knows no window; to scores the mask of this rank's
// queries is added.
Broken CpWithoutWindow(const Candidate& c) {
  const int64_t cp = c.recipe.parallelism().context_parallel_degree(), window = c.model.sliding_window();
  if (cp <= 1 || window == 0 || window >= c.layout.seq_len || model::MaterializesScores(c.model)) return {};
  return Fault(kCp, cp,
               absl::StrCat("cannot go with the model's sliding window of ", window, " tokens, shorter than training.seq_len = ",
                            c.layout.seq_len, ": use 1"));
}

Broken PpAtMostLayers(const Candidate& c) {
  if (c.layout.mesh.pp <= c.model.num_hidden_layers()) return {};
  return Fault(kPp, c.layout.mesh.pp,
               absl::StrCat("must be at most the model's ", c.model.num_hidden_layers(), " layers: each rank has one at least"));
}

// What a rule of chunks would say with another value of its key; the values that break none.
using SetKey = void (v1::Parallelism::*)(int64_t);
std::vector<int64_t> ValuesThatFit(const Candidate& c, SetKey set, int64_t from, int64_t to) {
  std::vector<int64_t> values;
  v1::Parallelism p = c.recipe.parallelism();
  for (int64_t value = from; value <= to; ++value) {
    (p.*set)(value);
    const int64_t layers = c.model.num_hidden_layers();
    if (SchedulePlaces(p, ChunkCount(p, layers)) && EveryChunkHasLayers(p, layers)) values.push_back(value);
  }
  return values;
}

bool IsListed(const Candidate& c) { return !c.recipe.parallelism().pipeline_parallel_schedule_csv().empty(); }

std::string ScheduleText(const Candidate& c) {
  return IsListed(c) ? "the listed schedule" : std::string(EnumText(c.recipe.parallelism().pipeline_parallel_schedule()));
}

// A listed schedule has a line for each rank.
Broken PpListsRanks(const Candidate& c) {
  const auto listed = ListedSchedule(c.recipe.parallelism());
  if (!listed || listed->placement.ranks == c.layout.mesh.pp) return {};
  return Fault(kPp, c.layout.mesh.pp,
               absl::StrCat("must be ", listed->placement.ranks, ", the lines of parallelism.pipeline_parallel_schedule_csv"));
}

// Where the parts list the modules, they say all that the other keys would.
bool ListsParts(const Candidate& c) {
  return c.layout.mesh.pp > 1 && c.recipe.parallelism().module_fqns_per_model_part_size() > 0;
}

Broken PpPartsAloneCutTheModel(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  constexpr char kRemedy[] = "cannot go with module_fqns_per_model_part, which lists what each chunk has: leave one of them out";
  if (!ListsParts(c)) return {};
  if (p.has_pipeline_parallel_layers_per_stage())
    return Fault("parallelism.pipeline_parallel_layers_per_stage", p.pipeline_parallel_layers_per_stage(), kRemedy);
  if (const int64_t less = p.pipeline_parallel_first_stage_less_layers(); less > 0)
    return Fault("parallelism.pipeline_parallel_first_stage_less_layers", less, kRemedy);
  if (const int64_t less = p.pipeline_parallel_last_stage_less_layers(); less > 0)
    return Fault("parallelism.pipeline_parallel_last_stage_less_layers", less, kRemedy);
  return {};
}

// "module_fqns_per_model_part[1][0]" as people write it.
std::string PlaceInParts(int part, int module) { return absl::StrCat(kParts, "[", part, "][", module, "]"); }

Broken PpPartsHoldTheModel(const Candidate& c) {
  if (!ListsParts(c)) return {};
  const auto& parts = c.recipe.parallelism().module_fqns_per_model_part();
  const std::vector<std::string> names = ModuleNames(c.model.num_hidden_layers());
  const std::string all = absl::StrCat("the parts list the modules of the model in their order, tok_embeddings, layers.0 to ",
                                       names[names.size() - 3], ", norm and output, each once");
  size_t next = 0;
  for (int part = 0; part < parts.size(); ++part) {
    for (int i = 0; i < parts[part].modules_size(); ++i, ++next) {
      const std::string& name = parts[part].modules(i);
      if (next == names.size()) return Violation{"", PlaceInParts(part, i), name, absl::StrCat("comes after output: ", all)};
      if (name != names[next])
        return Violation{"", PlaceInParts(part, i), name, absl::StrCat("must be ", names[next], ": ", all)};
    }
  }
  if (next == names.size()) return {};
  const std::string last = next == 0 ? "" : names[next - 1];
  return Violation{"", kParts, last, absl::StrCat("is the last module, and ", names[next], " must follow: ", all)};
}

// How many chunks of each rank the schedule can place.
std::string ScheduleNeeds(const Candidate& c) {
  const v1::PipelineSchedule schedule = c.recipe.parallelism().pipeline_parallel_schedule();
  if (const auto listed = ListedSchedule(c.recipe.parallelism()))
    return absl::StrCat(ScheduleText(c), " has ", listed->placement.chunks, " chunks");
  const bool in_v = PlacementOf(schedule, c.layout.mesh.pp, 2 * c.layout.mesh.pp).in_v;
  const char* const chunks = !Loops(schedule)                          ? "one chunk"
                             : schedule == v1::INTERLEAVED_ZERO_BUBBLE ? "as many chunks"
                             : in_v                                    ? "two chunks"
                                                                       : "several chunks";
  return absl::StrCat(ScheduleText(c), " needs ", chunks, " on each of the ", c.layout.mesh.pp, " pipeline ranks");
}

// The number of chunks nearest to `chunks` that the schedule can place.
int64_t NearestChunks(const Candidate& c, int64_t chunks) {
  const v1::Parallelism& p = c.recipe.parallelism();
  if (const auto listed = ListedSchedule(p)) return listed->placement.chunks;
  const int64_t ranks = c.layout.mesh.pp, near = std::max<int64_t>(1, (chunks + ranks / 2) / ranks) * ranks;
  return SchedulePlaces(p, near) ? near : SchedulePlaces(p, 2 * ranks) ? 2 * ranks : ranks;
}

Broken PpSchedulePlacesParts(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  const int64_t parts = p.module_fqns_per_model_part_size();
  if (!ListsParts(c) || SchedulePlaces(p, parts)) return {};
  return Violation{"", kParts, absl::StrCat(parts, parts == 1 ? " part" : " parts"),
                   absl::StrCat("does not fit: ", ScheduleNeeds(c), ": list ", NearestChunks(c, parts), " parts")};
}

Broken PpSchedulePlacesChunks(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  const int64_t layers = c.model.num_hidden_layers(), chunks = ChunkCount(p, layers);
  if (ListsParts(c) || SchedulePlaces(p, chunks)) return {};
  const std::vector<int64_t> fit = ValuesThatFit(c, &v1::Parallelism::set_pipeline_parallel_layers_per_stage, 1, layers);
  return Fault(
      "parallelism.pipeline_parallel_layers_per_stage", p.pipeline_parallel_layers_per_stage(),
      absl::StrCat("cuts the model's ", layers, " layers into ", chunks, chunks == 1 ? " chunk" : " chunks", ", and ",
                   ScheduleNeeds(c), ": ", fit.empty() ? "leave it out" : absl::StrCat("use one of ", absl::StrJoin(fit, ", "))));
}

Broken PpPartsHaveLayers(const v1::Parallelism& p) {
  for (int part = 0; part < p.module_fqns_per_model_part_size(); ++part) {
    const auto [first, last] = LayersOfChunk(p, 0, part);
    if (last > first) continue;
    return Violation{"", absl::StrCat(kParts, "[", part, "]"), absl::StrJoin(p.module_fqns_per_model_part(part).modules(), ", "),
                     "has none of the layers: each part needs one at least"};
  }
  return {};
}

Broken PpChunksHaveLayers(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  const int64_t layers = c.model.num_hidden_layers(), chunks = ChunkCount(p, layers);
  if (ListsParts(c)) return PpPartsHaveLayers(p);
  if (EveryChunkHasLayers(p, layers)) return {};
  if (layers + p.pipeline_parallel_first_stage_less_layers() + p.pipeline_parallel_last_stage_less_layers() < chunks) {
    return Fault(kPp, c.layout.mesh.pp,
                 absl::StrCat("makes ", chunks, " chunks with ", ScheduleText(c), ", and the model has ", layers,
                              " layers, one for each at least: use ", std::max<int64_t>(1, layers / (chunks / c.layout.mesh.pp)),
                              " or less"));
  }
  const auto [first, last] = LayersOfChunk(p, layers, 0);
  const bool at_first = last <= first;
  const int64_t value = at_first ? p.pipeline_parallel_first_stage_less_layers() : p.pipeline_parallel_last_stage_less_layers();
  const SetKey set = at_first ? &v1::Parallelism::set_pipeline_parallel_first_stage_less_layers
                              : &v1::Parallelism::set_pipeline_parallel_last_stage_less_layers;
  const std::vector<int64_t> fit = ValuesThatFit(c, set, 0, std::min(value, layers));
  return Fault(
      at_first ? "parallelism.pipeline_parallel_first_stage_less_layers" : "parallelism.pipeline_parallel_last_stage_less_layers",
      value,
      absl::StrCat("leaves the ", at_first ? "first" : "last", " of ", chunks, " chunks no layer: use ",
                   fit.empty() ? "0, and fewer for the other end" : absl::StrCat(fit.back(), " or less")));
}

constexpr char kTorchTitansRouter[] = "moe.router.gate";  // in the default of its key: a dense model has none

// A rule whose pattern no module of a block matches would keep nothing.
Broken KeepPolicyNamesModules(const Candidate& c) {
  const v1::ActivationCheckpoint& section = c.recipe.activation_checkpoint();
  if (!KeepsOperators(section)) return {};
  const std::vector<std::string> modules = ModulesOfBlock(c.model);
  for (const std::string& name : section.per_op_sac_force_recompute_mm_shapes_by_fqns()) {
    const auto has = [&](const std::string& module) { return !name.empty() && module.find(name) != std::string::npos; };
    if (name == kTorchTitansRouter || std::any_of(modules.begin(), modules.end(), has)) continue;
    return Violation{"", "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", name,
                     absl::StrCat("is a part of no module of a block: use one of", absl::StrJoin(modules, " "))};
  }
  const int64_t blocks = c.model.num_hidden_layers();
  for (const KeepRule& rule : KeepRules(section)) {
    if (rule.first_block >= blocks || (rule.last_block >= blocks && rule.last_block != INT64_MAX)) {
      const std::string range = rule.first_block == rule.last_block ? absl::StrCat(rule.first_block)
                                                                    : absl::StrCat(rule.first_block, "-", rule.last_block);
      return Violation{"", "activation_checkpoint.selective_ac_policy", range,
                       absl::StrCat("are no blocks of the model: it has 0 to ", blocks - 1)};
    }
    if (std::any_of(modules.begin(), modules.end(), [&](const std::string& module) { return rule.Matches(module); })) continue;
    return Violation{"", "activation_checkpoint.selective_ac_policy", rule.module,
                     absl::StrCat("matches no module of a block: use *, or one of", absl::StrJoin(modules, " "))};
  }
  return {};
}

// What `auto` means for a layout takes simulations to say.
Broken CheckpointingIsPlanned(const Candidate& c) {
  if (c.recipe.activation_checkpoint().mode() != v1::AC_AUTO) return {};
  return Violation{"", "activation_checkpoint.mode", "auto",
                   "has to be planned first: `lego plan --recipe FILE --out PLANNED` writes a recipe with a policy in its place, "
                   "and `lego sac` writes a policy for this layout"};
}

Broken TracedRanksExist(const Candidate& c) {
  for (const int64_t rank : c.recipe.metrics().trace_ranks()) {
    const int64_t world = c.layout.world_size;
    if (rank >= world) return Fault("metrics.trace_ranks", rank, absl::StrCat("is no rank of ", world, ": use 0 to ", world - 1));
  }
  return {};
}

// A microbatch would gather each stage's parameters anew.
Broken PpWithoutReshard(const Candidate& c) {
  if (c.layout.mesh.pp == 1 || c.recipe.parallelism().fsdp_reshard_after_forward() != v1::RESHARD_ALWAYS) return {};
  return Violation{"", "parallelism.fsdp_reshard_after_forward", "always",
                   "cannot go with pipeline parallelism: use \"default\" or \"never\""};
}

constexpr char kReshardSize[] = "parallelism.fsdp_reshard_after_forward_size";

// Parameters must go after their forward, for a part of them to be left.
Broken ReshardSizeHasWhatToReshard(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  const int64_t size = p.fsdp_reshard_after_forward_size();
  if (size == 0) return {};
  if (c.layout.mesh.pp > 1) return Fault(kReshardSize, size, "cannot go with pipeline parallelism: use 0");
  if (p.zero_stage() < 3) {
    return Fault(kReshardSize, size,
                 absl::StrCat("cannot go with zero_stage = ", p.zero_stage(), ", which keeps parameters whole: use 0"));
  }
  if (p.fsdp_reshard_after_forward() == v1::RESHARD_NEVER) {
    return Fault(kReshardSize, size,
                 "cannot go with fsdp_reshard_after_forward = \"never\", which keeps parameters gathered: use 0");
  }
  return {};
}

// FSDP2's rule: a group of one rank would keep parameters whole, one of all ranks reshard them as without the key.
Broken ReshardSizePartsTheShardGroup(const Candidate& c) {
  const int64_t size = c.recipe.parallelism().fsdp_reshard_after_forward_size();
  const int64_t ranks = c.layout.mesh.Size(mesh::Dim::kDpShardCp);
  const auto fits = [&](int64_t other) { return other > 1 && other < ranks && ranks % other == 0; };
  if (size == 0 || fits(size)) return {};
  int64_t nearest = 0;
  for (int64_t other = 2; other < ranks; ++other) {
    if (fits(other) && (nearest == 0 || std::abs(other - size) < std::abs(nearest - size))) nearest = other;
  }
  return Fault(kReshardSize, size,
               absl::StrCat("must be a divisor of data_parallel_shard_degree x context_parallel_degree = ", ranks,
                            ", more than 1 and less than all: use ", nearest));
}

Broken ZeroStageKeepsParameters(const Candidate& c) {
  const v1::Parallelism& p = c.recipe.parallelism();
  if (p.zero_stage() == 3 || p.fsdp_reshard_after_forward() != v1::RESHARD_ALWAYS) return {};
  return Fault("parallelism.zero_stage", p.zero_stage(),
               "keeps parameters whole, which fsdp_reshard_after_forward = \"always\" would free: use 3, or \"default\"");
}

Broken MicrobatchDividesLocalBatch(const Candidate& c) {
  if (c.layout.local_batch % c.layout.microbatch_size == 0) return {};
  return Fault("parallelism.pipeline_parallel_microbatch_size", c.layout.microbatch_size,
               absl::StrCat("must divide training.local_batch_size, ", c.layout.local_batch));
}

Broken LocalBatchesMakeGlobalBatch(const Candidate& c) {
  const int64_t at_once = c.layout.mesh.dp() * c.layout.local_batch;
  if (c.layout.global_batch % at_once == 0) return {};
  return Fault("training.global_batch_size", c.layout.global_batch,
               absl::StrCat("must be a multiple of ", at_once, ", the local batch of ", c.layout.local_batch, " on each of ",
                            c.layout.mesh.dp(), " data-parallel ranks: change local_batch_size or the data-parallel degrees"));
}

// DualPipeV needs some microbatches at least, a listed schedule its own.
Broken PpScheduleHasMicrobatches(const Candidate& c) {
  const auto listed = ListedSchedule(c.recipe.parallelism());
  const Layout& l = c.layout;
  const int64_t needs = listed ? MicrobatchesOf(*listed)
                               : LeastMicrobatches(c.recipe.parallelism().pipeline_parallel_schedule(), l.mesh.pp);
  const auto fits = [&](int64_t microbatches) { return listed ? microbatches == needs : microbatches >= needs; };
  const int64_t rows = l.global_batch / l.mesh.dp();
  if (l.mesh.pp == 1 || fits(rows / l.microbatch_size)) return {};
  const std::string why = absl::StrCat("makes ", rows / l.microbatch_size, " microbatches of a data-parallel rank's ", rows,
                                       " sequences, and ", ScheduleText(c), listed ? " has " : " needs at least ", needs);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= l.local_batch; ++size) {
    if (l.local_batch % size == 0 && fits(rows / size)) sizes.push_back(size);
  }
  if (!sizes.empty()) {
    return Fault("parallelism.pipeline_parallel_microbatch_size", l.microbatch_size,
                 absl::StrCat(why, ": use one of ", absl::StrJoin(sizes, ", ")));
  }
  const int64_t wanted = needs * (listed ? l.microbatch_size : 1);  // rows
  const bool whole = wanted % l.local_batch == 0;
  const int64_t batch = (listed ? wanted : (wanted + l.local_batch - 1) / l.local_batch * l.local_batch) * l.mesh.dp();
  return Fault("training.global_batch_size", l.global_batch,
               absl::StrCat(why, ": use ", batch, listed ? "" : " or more",
                            listed && !whole ? absl::StrCat(" and a local_batch_size that divides ", wanted) : "",
                            !listed && l.microbatch_size > 1 ? ", with microbatches of one sequence" : ""));
}

}  // namespace

const std::vector<Rule>& Rules() {
  static const auto* const rules = new std::vector<Rule>{
      {"degrees_match_world_size", DegreesMatchWorldSize},
      {"tp_divides_heads", TpDividesHeads},
      {"tp_divides_kv_heads", TpDividesKvHeads},
      {"tp_divides_intermediate", TpDividesIntermediate},
      {"tp_divides_vocab", TpDividesVocab},
      {"tp_divides_sequence", TpDividesSequence},
      {"cp_divides_sequence", CpDividesSequence},
      {"cp_gathers_keys", CpGathersKeys},
      {"cp_without_window", CpWithoutWindow},
      {"sequence_within_positions", SequenceWithinPositions},
      {"pp_at_most_layers", PpAtMostLayers},
      {"pp_lists_ranks", PpListsRanks},
      {"pp_parts_alone_cut_the_model", PpPartsAloneCutTheModel},
      {"pp_parts_hold_the_model", PpPartsHoldTheModel},
      {"pp_schedule_places_parts", PpSchedulePlacesParts},
      {"pp_schedule_places_chunks", PpSchedulePlacesChunks},
      {"pp_chunks_have_layers", PpChunksHaveLayers},
      {"pp_without_reshard", PpWithoutReshard},
      {"zero_stage_keeps_parameters", ZeroStageKeepsParameters},
      {"reshard_size_has_what_to_reshard", ReshardSizeHasWhatToReshard},
      {"reshard_size_parts_the_shard_group", ReshardSizePartsTheShardGroup},
      {"checkpointing_is_planned", CheckpointingIsPlanned},
      {"keep_policy_names_modules", KeepPolicyNamesModules},
      {"microbatch_divides_local_batch", MicrobatchDividesLocalBatch},
      {"local_batches_make_global_batch", LocalBatchesMakeGlobalBatch},
      {"pp_schedule_has_microbatches", PpScheduleHasMicrobatches},
      {"traced_ranks_exist", TracedRanksExist},
      {"fsdp_bucketing_has_a_program", FsdpBucketingHasAProgram},
      {"fsdp_buckets_name_modules", FsdpBucketsNameModules},
      {"async_tensor_parallel_has_a_program", AsyncTensorParallelHasAProgram},
      {"fusing_has_a_program", FusingHasAProgram},
  };
  return *rules;
}

std::optional<Violation> FirstViolation(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size, Layout* layout) {
  if (const std::vector<absl::Status> faults = RecipeFaults(recipe); !faults.empty()) {
    const v1::FieldViolation fault = GetFieldViolation(faults.front()).value_or(v1::FieldViolation());
    return Violation{"keys_in_range", fault.field(), fault.value(), fault.remedy()};
  }
  *layout = DeriveLayout(recipe, model, world_size);
  for (const Rule& rule : Rules()) {
    if (std::optional<Violation> violation = rule.check({recipe, model, *layout})) {
      violation->rule = rule.name;
      return violation;
    }
  }
  return std::nullopt;
}

}  // namespace legoai::parallel
