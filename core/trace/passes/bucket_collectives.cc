#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/passes/shard_collectives.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

// Where a member's columns lie in the bucket's buffer, [ranks, width].
struct Columns {
  int64_t own = 0;     // elements of a row of the member's buffer
  int64_t first = 0;   // column
  int64_t width = 0;   // elements of a row of the bucket's
};

// A tensor of the member's buffer, in the bucket's. Nothing where it runs across rows.
std::optional<Geometry> InBucket(Geometry geometry, const Columns& columns) {
  const int64_t row = geometry.offset / columns.own, column = geometry.offset % columns.own;
  int64_t last = column;
  for (size_t i = 0; i < geometry.sizes.size(); ++i) {
    int64_t& stride = geometry.strides[i];
    if (geometry.sizes[i] <= 1) continue;
    if (stride % columns.own == 0) {
      stride = stride / columns.own * columns.width;
    } else {
      last += (geometry.sizes[i] - 1) * stride;
    }
  }
  if (last >= columns.own) return std::nullopt;
  geometry.offset = row * columns.width + columns.first + column;
  return geometry;
}

std::string CommonModule(const std::vector<std::string>& paths) {
  std::string common = paths.front();
  for (const std::string& path : paths) {
    while (path != common && path.compare(0, common.size() + 1, common + ".") != 0) {
      const size_t dot = common.rfind('.');
      if (dot == std::string::npos) return "";
      common.resize(dot);
    }
  }
  return common;
}

class Bucketing {
 public:
  Bucketing(Trace trace, ShardCollectives found, const std::vector<parallel::FsdpBucket>& buckets,
            const std::vector<parallel::FsdpBucket>& backward)
      : found_(std::move(found)),
        buckets_(buckets),
        backward_(backward),
        rewriter_(std::move(trace)),
        values_of_(rewriter_.trace().storages.size()) {
    for (uint32_t v = 0; v < this->trace().values.size(); ++v) values_of_[this->trace().values[v].storage].push_back(v);
  }

  absl::StatusOr<Trace> Run() {
    for (const auto& members : Joined(found_.gathers)) RETURN_IF_ERROR(JoinGathers(members));
    for (const auto& members : Joined(found_.reductions)) RETURN_IF_ERROR(JoinReductions(members));
    Trace joined = rewriter_.Finish();
    FreeSumsAtTheLast(&joined);
    return joined;
  }

 private:
  template <class C>
  using Members = std::vector<const C*>;

  // Collectives of one bucket in one span; a parameter that comes again begins anew.
  template <class C>
  std::vector<Members<C>> Joined(const std::vector<C>& collectives) const {
    std::vector<Members<C>> all;
    std::map<std::pair<uint32_t, int64_t>, size_t> open;  // by span and bucket
    for (const C& collective : collectives) {
      const int64_t bucket =
          parallel::BucketOf(collective.phase == Phase::kBackward ? backward_ : buckets_, collective.parameter);
      if (bucket < 0) continue;
      const auto [found, fresh] = open.try_emplace({collective.span, bucket}, all.size());
      if (!fresh && std::any_of(all[found->second].begin(), all[found->second].end(),
                                [&](const C* member) { return member->parameter == collective.parameter; })) {
        found->second = all.size();
      }
      if (found->second == all.size()) all.emplace_back();
      all[found->second].push_back(&collective);
    }
    all.erase(std::remove_if(all.begin(), all.end(), [](const Members<C>& members) { return members.size() < 2; }), all.end());
    return all;
  }

  const Trace& trace() { return rewriter_.trace(); }
  InstructionView View(uint32_t instruction) { return InstructionView(trace(), rewriter_.At(instruction)); }
  static int BufferArgument(const Gather&) { return 0; }
  static int BufferArgument(const Reduction&) { return 1; }
  // [ranks, elements] of a member's buffer.
  template <class C>
  const Geometry& BufferOf(const C& member) {
    const InstructionView op = View(member.collective);
    return op.GeometryOf(*op.Input(BufferArgument(member)));
  }

  template <class C>
  absl::StatusOr<std::vector<Columns>> Lay(const Members<C>& members) {
    std::vector<Columns> columns;
    int64_t width = 0;
    const Geometry first = BufferOf(*members.front());
    for (const C* member : members) {
      const Geometry& buffer = BufferOf(*member);
      if (buffer.sizes.size() != 2 || buffer.sizes[0] != first.sizes[0] || buffer.dtype != first.dtype)
        return absl::InternalError(
            absl::StrCat("the buffers of ", members.front()->parameter, " and ", member->parameter, " do not go together"));
      columns.push_back({buffer.sizes[1], width, 0});
      width += buffer.sizes[1];
    }
    for (Columns& of : columns) of.width = width;
    return columns;
  }

  // A storage like another one, with another number of elements, and the instruction that makes it.
  uint32_t MakeStorage(uint32_t like, std::vector<int64_t> sizes, uint32_t maker, uint32_t module, Instruction* make) {
    Geometry geometry{View(maker).GeometryOf(*View(maker).Result(0)).dtype, 0, sizes, {}};
    geometry.strides.assign(sizes.size(), 1);
    for (size_t i = sizes.size() - 1; i-- > 0;) geometry.strides[i] = geometry.strides[i + 1] * sizes[i + 1];
    Storage storage = trace().storages[like];
    storage.bytes = ExtentBytes(geometry);
    rewriter_.trace().storages.push_back(storage);
    const uint32_t made = static_cast<uint32_t>(trace().storages.size() - 1);
    const uint32_t value = rewriter_.AddValue(made, std::move(geometry));
    *make = rewriter_.Again(rewriter_.At(maker),
                            {{.argument = 0, .to = {Argument::Kind::kConstant, rewriter_.AddConstant(std::move(sizes))}},
                             {.result = 0, .to = {Argument::Kind::kValue, value}}});
    make->module = module;
    return value;
  }

  // All tensors of a member's storage are tensors of the bucket's from now on.
  absl::Status Adopt(uint32_t member, uint32_t bucket, const Columns& columns) {
    for (uint32_t v : values_of_[member]) {
      std::optional<Geometry> moved = InBucket(trace().geometries[trace().values[v].geometry], columns);
      if (!moved) {
        return absl::InternalError(absl::StrCat("storage ", member, ": value ", v, " runs across the rows of a buffer"));
      }
      rewriter_.trace().geometries.push_back(*std::move(moved));
      rewriter_.trace().values[v] = {bucket, static_cast<uint32_t>(trace().geometries.size() - 1)};
    }
    return absl::OkStatus();
  }

  template <class C>
  uint32_t ModuleOf(const Members<C>& members) {
    std::vector<std::string> paths;
    for (const C* member : members) paths.push_back(member->parameter);
    return rewriter_.AddModule(CommonModule(paths));
  }

  // The instruction that makes a storage: the first that uses it.
  uint32_t MakerOf(const ShardCollective& member, uint32_t storage) {
    for (uint32_t i : member.start) {
      const std::vector<uint32_t> storages = StoragesOf(trace(), rewriter_.At(i));
      if (std::find(storages.begin(), storages.end(), storage) != storages.end()) return i;
    }
    return member.start.front();
  }

  // What of `start` only packs.
  std::vector<uint32_t> Packs(const ShardCollective& member, const std::set<uint32_t>& makers) {
    std::vector<uint32_t> packs;
    for (uint32_t i : member.start) {
      if (i != member.collective && makers.count(i) == 0 && !EventOf(trace(), rewriter_.At(i))) packs.push_back(i);
    }
    return packs;
  }

  // The first member's streams part at `place`, and `collective` runs.
  void Issue(const ShardCollective& first, const Instruction& collective, uint32_t place) {
    for (uint32_t i : first.start) {
      Instruction instruction = i == first.collective ? collective : rewriter_.At(i);
      if (i != first.collective && !EventOf(trace(), instruction)) continue;
      instruction.module = collective.module;
      rewriter_.Insert(place, instruction);
    }
    Instruction wait = rewriter_.At(first.wait);
    wait.module = collective.module;
    rewriter_.Insert(place, wait);
  }

  uint32_t FreeIn(const ShardCollective& member) {
    return *std::find_if(member.finish.begin(), member.finish.end(),
                         [&](uint32_t i) { return rewriter_.At(i).kind == Instruction::Kind::kFree; });
  }
  void Free(uint32_t storage, uint32_t like, uint32_t place) {
    Instruction free = rewriter_.At(like);
    free.immediate = storage;
    rewriter_.Insert(place, free);
  }

  absl::Status JoinGathers(const Members<Gather>& members) {
    const Gather& first = *members.front();
    ASSIGN_OR_RETURN(const std::vector<Columns> columns, Lay(members));
    const uint32_t place = first.start.front(), module = ModuleOf(members);
    const int64_t width = columns[0].width, ranks = BufferOf(first).sizes[0];
    const Geometry own = View(first.collective).GeometryOf(*View(first.collective).Input(1));
    const uint32_t row = static_cast<uint32_t>(own.offset / columns[0].own);
    Instruction make;
    const uint32_t buffer = MakeStorage(first.buffer, {ranks, width}, MakerOf(first, first.buffer), module, &make);
    const uint32_t storage = trace().values[buffer].storage;
    const uint32_t sent = rewriter_.AddValue(storage, {own.dtype, row * width, {width}, {1}});
    Instruction collective = rewriter_.Again(rewriter_.At(first.collective),
                                             {{.argument = 0, .to = {Argument::Kind::kValue, buffer}},
                                              {.argument = 1, .to = {Argument::Kind::kValue, sent}}});
    collective.module = module;
    rewriter_.Insert(place, make);
    for (const Gather* member : members) {
      for (uint32_t i : Packs(*member, {MakerOf(*member, member->buffer)})) rewriter_.Insert(place, rewriter_.At(i));
    }
    Issue(first, collective, place);
    for (size_t m = 0; m < members.size(); ++m) {
      const Gather& member = *members[m];
      for (uint32_t i : member.finish) {
        if (i != member.wait && rewriter_.At(i).kind != Instruction::Kind::kFree) rewriter_.Insert(place, rewriter_.At(i));
      }
      for (const std::vector<uint32_t>* part : {&member.start, &member.finish}) {
        for (uint32_t i : *part) rewriter_.Remove(i);
      }
      RETURN_IF_ERROR(Adopt(member.buffer, storage, columns[m]));
    }
    Free(storage, FreeIn(first), place);
    return absl::OkStatus();
  }

  absl::Status JoinReductions(const Members<Reduction>& members) {
    const Reduction &first = *members.front(), &last = *members.back();
    ASSIGN_OR_RETURN(const std::vector<Columns> columns, Lay(members));
    const int64_t width = columns[0].width, ranks = BufferOf(first).sizes[0];
    const uint32_t place = last.collective + 1, module = ModuleOf(members);
    Instruction make, make_sums;
    const uint32_t buffer = MakeStorage(first.buffer, {ranks, width}, MakerOf(first, first.buffer), module, &make);
    const uint32_t sums = MakeStorage(first.sum, {width}, MakerOf(first, first.sum), module, &make_sums);
    const uint32_t buffer_storage = trace().values[buffer].storage, sum_storage = trace().values[sums].storage;
    Instruction collective = rewriter_.Again(rewriter_.At(first.collective),
                                             {{.argument = 0, .to = {Argument::Kind::kValue, sums}},
                                              {.argument = 1, .to = {Argument::Kind::kValue, buffer}}});
    collective.module = module;
    rewriter_.Insert(place, make);
    for (const Reduction* member : members) {
      for (uint32_t i : Packs(*member, {MakerOf(*member, member->buffer), MakerOf(*member, member->sum)}))
        rewriter_.Insert(place, rewriter_.At(i));
    }
    rewriter_.Insert(place, make_sums);
    Issue(first, collective, place);
    RETURN_IF_ERROR(CheckReplicasAreAlike(members));
    if (first.replicas && !first.replicas->follows_tail) JoinReplicas(members, sums, place);
    Free(buffer_storage, FreeIn(last), place);
    for (size_t m = 0; m < members.size(); ++m) {
      const Reduction& member = *members[m];
      for (const std::vector<uint32_t>* part : {&member.start, &member.finish}) {
        for (uint32_t i : *part) rewriter_.Remove(i);
      }
      for (uint32_t i : member.tail) {
        if (i < place) rewriter_.Move(i, place);
      }
      RETURN_IF_ERROR(Adopt(member.buffer, buffer_storage, columns[m]));
      // The sums are one row.
      RETURN_IF_ERROR(Adopt(member.sum, sum_storage, columns[m]));
      sums_[member.sum] = sum_storage;
    }
    // The last member's tail stays where it is.
    if (first.replicas && first.replicas->follows_tail) SumEarlierOverReplicas(members, last.replicas->issue.back() + 1);
    return absl::OkStatus();
  }

  absl::Status CheckReplicasAreAlike(const Members<Reduction>& members) const {
    const Reduction& first = *members.front();
    for (const Reduction* member : members) {
      if (member->replicas.has_value() != first.replicas.has_value() ||
          (first.replicas && member->replicas->follows_tail != first.replicas->follows_tail))
        return absl::InternalError(
            absl::StrCat("the sums of ", first.parameter, " and ", member->parameter, " do not go together"));
    }
    return absl::OkStatus();
  }

  // One all-reduce of `sums`, all of the bucket's, in place of the members'.
  void JoinReplicas(const Members<Reduction>& members, uint32_t sums, uint32_t place) {
    const ReplicaSum& first = *members.front()->replicas;
    const Instruction collective =
        rewriter_.Again(rewriter_.At(first.collective), {{.argument = 0, .to = {Argument::Kind::kValue, sums}}});
    for (const uint32_t i : first.issue) rewriter_.Insert(place, i == first.collective ? collective : rewriter_.At(i));
    uint32_t wait = first.wait;  // the earliest of all
    for (const Reduction* member : members) {
      wait = std::min(wait, member->replicas->wait);
      for (const uint32_t i : member->replicas->issue) rewriter_.Remove(i);
      if (member != members.front()) rewriter_.Remove(member->replicas->wait);
    }
    if (wait != first.wait) rewriter_.Move(first.wait, wait);
  }

  // Earlier sums of the members are one tensor if the same ones were joined before; else each is summed as it was.
  void SumEarlierOverReplicas(const Members<Reduction>& members, uint32_t place) {
    std::set<uint32_t> storages;
    int64_t elements = 0;
    v1::DType dtype = v1::DTYPE_UNSPECIFIED;
    for (const Reduction* member : members) {
      const InstructionView op = View(member->replicas->collective);
      const Geometry& geometry = op.GeometryOf(*op.Input(0));
      storages.insert(op.Input(0)->storage);
      elements += Elements(geometry);
      dtype = geometry.dtype;
    }
    const uint32_t storage = *storages.begin();
    if (storages.size() == 1 && trace().storages[storage].bytes == elements * ElementBytes(dtype))
      return JoinReplicas(members, rewriter_.AddValue(storage, {dtype, 0, {elements}, {1}}), place);
    for (const Reduction* member : members) {
      for (const uint32_t i : member->replicas->issue) rewriter_.Move(i, place);
    }
  }

  // A bucket's sums are freed with the last member's.
  void FreeSumsAtTheLast(Trace* joined) const {
    std::set<uint32_t> freed;
    auto& list = joined->instructions;
    std::vector<Instruction> reversed;
    for (auto instruction = list.rbegin(); instruction != list.rend(); ++instruction) {
      const bool is_free = instruction->kind == Instruction::Kind::kFree;
      const auto sum = is_free ? sums_.find(static_cast<uint32_t>(instruction->immediate)) : sums_.end();
      if (sum != sums_.end()) {
        if (!freed.insert(sum->second).second) continue;
        instruction->immediate = sum->second;
      }
      reversed.push_back(*instruction);
    }
    list.assign(reversed.rbegin(), reversed.rend());
  }

  const ShardCollectives found_;
  const std::vector<parallel::FsdpBucket>&buckets_, &backward_;  // backward_: of what a backward gathers and reduces
  Rewriter rewriter_;
  std::vector<std::vector<uint32_t>> values_of_;
  std::map<uint32_t, uint32_t> sums_;  // storage of a member's sums -> of its bucket's
};

}  // namespace

absl::StatusOr<Trace> BucketCollectives(Trace trace, const std::vector<parallel::FsdpBucket>& buckets,
                                        const std::vector<parallel::FsdpBucket>& backward) {
  ASSIGN_OR_RETURN(ShardCollectives found, FindShardCollectives(trace));
  return Bucketing(std::move(trace), std::move(found), buckets, backward).Run();
}

}  // namespace legoai::graph
