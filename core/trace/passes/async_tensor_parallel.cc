#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/views.h"

namespace legoai::graph {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A product in a Trace: aten::mm(rows, weight) or aten::addmm(bias, rows, weight, ...).
struct Product {
  uint32_t at = kNone;
  int rows = 0;  // position of its left operand: [tokens, k], of all ranks' tokens
  uint32_t left = 0, result = 0;  // values; the result is [tokens, n], dense
};

// An all-gather of tokens whose first reader is a product, or a reduce-scatter of one's result.
struct Edge {
  Product product;
  std::vector<Product> others;  // of an all-gather: products of the same tokens that can be computed with it
  uint32_t at = kNone;        // the collective
  uint32_t permuted = kNone;  // the copy between collective and product where a batch has several sequences
  uint32_t sum = kNone;       // of a reduce-scatter: the instruction that adds the product to what others gave
  uint32_t added = 0;         // storage: what others gave
  int64_t ranks = 0, index = 0, batch = 0, tokens = 0;  // [batch, tokens, ...] of a rank; this rank's place
};

// The rank whose step it is: the one that is in all of its groups.
int64_t RankOf(const Trace& trace) {
  for (const int64_t rank : trace.groups.empty() ? std::vector<int64_t>() : trace.groups.front().ranks.List()) {
    const auto has = [&](const mesh::Group& group) { return group.ranks.IndexOf(rank) >= 0; };
    if (std::all_of(trace.groups.begin(), trace.groups.end(), has)) return rank;
  }
  return 0;
}

class Chunking {
 public:
  explicit Chunking(Trace trace)
      : rank_(RankOf(trace)),
        rewriter_(std::move(trace)),
        users_(this->trace().storages.size()),
        frees_(this->trace().storages.size(), kNone) {
    for (uint32_t i = 0; i < this->trace().instructions.size(); ++i) {
      const Instruction& instruction = this->trace().instructions[i];
      if (instruction.kind == Instruction::Kind::kFree) frees_[instruction.immediate] = i;
      for (uint32_t storage : StoragesOf(this->trace(), instruction)) users_[storage].push_back(i);
      if (const auto event = EventOf(this->trace(), instruction)) next_event_ = std::max(next_event_, event->event + 1);
    }
  }

  Trace Run() {
    for (uint32_t i = 0; i < rewriter_.size(); ++i) {
      const Instruction& instruction = rewriter_.At(i);
      if (instruction.kind != Instruction::Kind::kOperator || instruction.stream != comm::kCompute) continue;
      const std::string& name = trace().OperatorName(instruction);
      if (name == "lego::all_gather_into") {
        if (const auto edge = FindGather(i)) ChunkGather(*edge);
      } else if (name == "lego::reduce_scatter_into") {
        if (const auto edge = FindScatter(i)) ChunkScatter(*edge);
      }
    }
    return rewriter_.Finish();
  }

 private:
  const Trace& trace() { return rewriter_.trace(); }
  InstructionView View(uint32_t i) { return InstructionView(trace(), rewriter_.At(i)); }
  const Geometry& GeometryOf(uint32_t value) { return trace().geometries[trace().values[value].geometry]; }
  uint32_t StorageOf(uint32_t value) { return trace().values[value].storage; }
  static uint32_t Id(const std::vector<Argument>& column, uint32_t at) { return column[at].index; }
  uint32_t InputId(uint32_t i, int place) { return Id(trace().arguments, rewriter_.At(i).first_argument + place); }
  uint32_t ResultId(uint32_t i) { return Id(trace().results, rewriter_.At(i).first_result); }
  bool IsView(uint32_t i) { return IsViewOf(trace(), rewriter_.At(i)); }

  // Users of a storage that read or write its memory.
  std::vector<uint32_t> Uses(uint32_t storage) {
    std::vector<uint32_t> uses;
    for (uint32_t i : users_[storage]) {
      if (!IsView(i) && !graph::IsView(trace().OperatorName(rewriter_.At(i)))) uses.push_back(i);
    }
    return uses;
  }
  bool IsNamed(uint32_t i, std::string_view name) { return trace().OperatorName(rewriter_.At(i)) == name; }

  static bool IsDense(const Geometry& geometry) {
    int64_t stride = 1;
    for (size_t d = geometry.sizes.size(); d-- > 0; stride *= geometry.sizes[d]) {
      if (geometry.sizes[d] > 1 && geometry.strides[d] != stride) return false;
    }
    return true;
  }
  static bool IsWhole(const Geometry& geometry) { return geometry.offset == 0 && IsDense(geometry); }

  std::optional<Product> ProductAt(uint32_t i) {
    const bool plain = IsNamed(i, "aten::mm"), biased = IsNamed(i, "aten::addmm");
    if ((!plain && !biased) || rewriter_.At(i).stream != comm::kCompute) return std::nullopt;
    Product product{i, biased ? 1 : 0};
    product.left = InputId(i, product.rows);
    product.result = ResultId(i);
    const Geometry &left = GeometryOf(product.left), &result = GeometryOf(product.result);
    const bool is_first = users_[StorageOf(product.result)].front() == i && chunked_.count(i) == 0;
    if (!is_first || !IsWhole(result) || left.dtype != result.dtype) return std::nullopt;
    return product;
  }

  // The collective's group and the tensor of one rank, [batch, tokens, dim].
  std::optional<Edge> EdgeAt(uint32_t i, int own) {
    const EffectRow& row = *FindEffect(trace().OperatorName(rewriter_.At(i)));
    const mesh::Group& group = trace().groups[*View(i).Constant<int64_t>(row.group)];
    const Geometry& of_rank = GeometryOf(InputId(i, own));
    if (group.dim != mesh::Dim::kTp || group.ranks.size == 1 || of_rank.sizes.size() != 3) return std::nullopt;
    Edge edge;
    edge.at = i;
    edge.ranks = group.ranks.size;
    edge.index = group.ranks.IndexOf(rank_);
    edge.batch = of_rank.sizes[0], edge.tokens = of_rank.sizes[1];
    return edge;
  }

  // Whether nothing else of the group comes between a collective and its product: its messages would meet those of the ring.
  bool IsAlone(const Edge& edge) {
    const uint32_t first = std::min(edge.at, edge.product.at), last = std::max(edge.at, edge.product.at);
    for (uint32_t i = first + 1; i < last; ++i) {
      const Instruction& instruction = rewriter_.At(i);
      if (instruction.kind != Instruction::Kind::kOperator || instruction.stream != comm::kCompute) continue;
      const EffectRow* const row = FindEffect(trace().OperatorName(instruction));
      if (row == nullptr || !row->IsCommunication()) continue;
      if (trace().groups[*View(i).Constant<int64_t>(row->group)].dim == mesh::Dim::kTp) return false;
    }
    return true;
  }
  bool IsMadeEmpty(uint32_t storage) { return IsNamed(users_[storage].front(), "aten::empty.memory_format"); }

  bool IsOfAllTokens(const Geometry& geometry, const Edge& edge) {
    return geometry.sizes.size() == 2 && geometry.sizes[0] == edge.ranks * edge.batch * edge.tokens;
  }

  std::optional<Edge> FindGather(uint32_t i) {
    std::optional<Edge> edge = EdgeAt(i, 1);
    if (!edge) return std::nullopt;
    const uint32_t gathered = StorageOf(InputId(i, 0));
    uint32_t whole = gathered;
    const auto next = [&](uint32_t storage, uint32_t after) {
      const std::vector<uint32_t> uses = Uses(storage);
      const auto found = std::upper_bound(uses.begin(), uses.end(), after);
      return found == uses.end() ? kNone : *found;
    };
    if (edge->batch > 1) {
      edge->permuted = next(gathered, i);
      if (edge->permuted == kNone || !IsNamed(edge->permuted, "aten::clone") || next(gathered, edge->permuted) != kNone)
        return std::nullopt;
      whole = StorageOf(ResultId(edge->permuted));
    }
    const uint32_t first = next(whole, edge->batch > 1 ? edge->permuted : i);
    const auto product = first == kNone ? std::nullopt : ProductAt(first);
    if (!product || StorageOf(product->left) != whole) return std::nullopt;
    const Geometry& left = GeometryOf(product->left);
    if (!IsWhole(left) || !IsOfAllTokens(left, *edge) || !IsMadeEmpty(gathered)) return std::nullopt;
    edge->product = *product;
    if (!IsAlone(*edge)) return std::nullopt;
    for (const uint32_t reader : Uses(whole)) {
      if (const auto other = OtherReader(reader, *edge)) edge->others.push_back(*other);
    }
    return edge;
  }

  // A later product of the gathered tokens, all of whose operands are there when the first one is computed.
  std::optional<Product> OtherReader(uint32_t i, const Edge& edge) {
    const uint32_t first = edge.product.at;
    const Instruction &a = rewriter_.At(first), &b = rewriter_.At(i);
    if (i <= first || a.phase != b.phase || a.action != b.action || a.microbatch != b.microbatch) return std::nullopt;
    const auto product = ProductAt(i);
    if (!product || !(GeometryOf(product->left) == GeometryOf(edge.product.left)) ||
        StorageOf(product->left) != StorageOf(edge.product.left))
      return std::nullopt;
    const Operands operands = OperandsOf(trace(), b);
    const bool there = std::all_of(operands.reads.begin(), operands.reads.end(),
                                   [&](uint32_t value) { return IsThere(StorageOf(value), first, i); });
    return there ? product : std::nullopt;
  }

  // Whether an instruction writes a storage, or makes it.
  bool Writes(uint32_t i, uint32_t storage) {
    if (IsView(i) || graph::IsView(trace().OperatorName(rewriter_.At(i)))) return false;
    const Operands operands = OperandsOf(trace(), rewriter_.At(i));
    const auto is_of = [&](uint32_t value) { return StorageOf(value) == storage; };
    return std::any_of(operands.writes.begin(), operands.writes.end(), is_of) ||
           std::any_of(operands.results.begin(), operands.results.end(), is_of);
  }

  // Whether the compute stream waits for another one between two instructions.
  bool WaitsBetween(uint32_t begin, uint32_t end) {
    for (uint32_t i = begin + 1; i < end; ++i) {
      const auto event = EventOf(trace(), rewriter_.At(i));
      if (event && !event->is_record && event->stream == comm::kCompute) return true;
    }
    return false;
  }

  // Whether what a storage holds at `end` is there before `begin` already: nobody writes it between them, nor is another stream
  // that wrote it waited for only there.
  bool IsThere(uint32_t storage, uint32_t begin, uint32_t end) {
    uint32_t last = kNone;
    for (const uint32_t user : users_[storage]) {
      if (user >= end) break;
      if (!Writes(user, storage)) continue;
      if (user >= begin) return false;
      last = user;
    }
    return last == kNone || rewriter_.At(last).stream == comm::kCompute || !WaitsBetween(begin, end);
  }

  std::optional<Edge> FindScatter(uint32_t i) {
    std::optional<Edge> edge = EdgeAt(i, 0);
    if (!edge) return std::nullopt;
    uint32_t partial = StorageOf(InputId(i, 1)), reader = i;
    if (edge->batch > 1) {
      edge->permuted = users_[partial].front();
      if (!IsNamed(edge->permuted, "aten::clone") || Uses(partial).size() != 2) return std::nullopt;
      partial = StorageOf(InputId(edge->permuted, 0));
      reader = edge->permuted;
    }
    std::vector<uint32_t> uses = Uses(partial);
    if (uses.size() < 2 || uses.back() != reader || trace().storages[partial].kind != StorageKind::kInner) return std::nullopt;
    uint32_t last = uses[uses.size() - 2];
    if (IsNamed(last, "aten::add_.Tensor") && StorageOf(InputId(last, 0)) == partial) {
      edge->sum = last, edge->added = partial;
      const uint32_t given = StorageOf(InputId(last, 1));
      const std::vector<uint32_t> of_given = Uses(given);
      if (given == partial || of_given.size() != 2 || of_given.back() != last) return std::nullopt;
      last = of_given.front();
      if (uses.size() > 2 && uses[uses.size() - 3] > last) return std::nullopt;  // the others are not there yet
    } else if (uses.size() != 2) {
      return std::nullopt;
    }
    const auto product = ProductAt(last);
    if (!product || !IsOfAllTokens(GeometryOf(product->result), *edge) || !IsMadeEmpty(StorageOf(InputId(i, 0))))
      return std::nullopt;
    edge->product = *product;
    if (!IsAlone(*edge)) return std::nullopt;
    return edge;
  }

  Argument Number(int64_t number) { return {Argument::Kind::kConstant, rewriter_.AddConstant(number)}; }
  static Argument Tensor(uint32_t value) { return {Argument::Kind::kValue, value}; }
  uint32_t Dense(uint32_t storage, v1::DType dtype, int64_t offset, std::vector<int64_t> sizes) {
    Geometry geometry{dtype, offset, std::move(sizes), {}};
    geometry.strides.assign(geometry.sizes.size(), 1);
    for (size_t d = geometry.sizes.size(); d-- > 1;) geometry.strides[d - 1] = geometry.strides[d] * geometry.sizes[d];
    return rewriter_.AddValue(storage, std::move(geometry));
  }

  // Marks of what is emitted are those of `like_`.
  void Emit(const std::string& name, uint64_t writes, const std::vector<Argument>& arguments,
            const std::vector<uint32_t>& results, int64_t stream = comm::kCompute) {
    rewriter_.Insert(place_, rewriter_.Make(like_, name, writes, arguments, results, stream));
  }
  void Record(int64_t stream, int64_t event) { Emit("lego::record_event", 0, {Number(stream), Number(event)}, {}); }
  void Wait(int64_t stream, int64_t event) { Emit("lego::wait_event", 0, {Number(stream), Number(event)}, {}); }
  void Free(uint32_t storage) {
    Instruction free;
    free.kind = Instruction::Kind::kFree;
    free.phase = like_.phase, free.action = like_.action, free.microbatch = like_.microbatch;
    free.immediate = storage;
    rewriter_.Insert(place_, free);
  }
  // As `maker` makes its result, of other sizes. Gives the value.
  uint32_t Empty(uint32_t maker, uint32_t value) {
    const Geometry& geometry = GeometryOf(value);
    Instruction make = rewriter_.Again(
        rewriter_.At(maker), {{.argument = 0, .to = {Argument::Kind::kConstant, rewriter_.AddConstant(geometry.sizes)}},
                              {.result = 0, .to = Tensor(value)}});
    make.module = like_.module, make.phase = like_.phase;
    make.action = like_.action, make.microbatch = like_.microbatch;
    rewriter_.Insert(place_, make);
    return value;
  }
  uint32_t NewStorage(uint32_t like, int64_t bytes) {
    Storage storage = trace().storages[like];
    storage.bytes = bytes;
    rewriter_.trace().storages.push_back(std::move(storage));
    return static_cast<uint32_t>(trace().storages.size() - 1);
  }

  // `done` is recorded when what comes is here.
  void Rotate(uint32_t into, uint32_t from, Argument group, int64_t done) {
    Emit("lego::rotate_into", 1, {Tensor(into), Tensor(from), group}, {}, comm::kRotate);
    Record(comm::kRotate, done);
  }

  // Rows of the product of the tokens of rank `block`: a product for each sequence of the batch. `left` and `result` give the
  // values of a sequence's rows.
  template <class Left, class Result>
  void Multiply(const Edge& edge, const Product& product, Left left, Result result) {
    const Instruction& whole = rewriter_.At(product.at);
    const bool biased = product.rows == 1;
    for (int64_t sequence = 0; sequence < edge.batch; ++sequence) {
      std::vector<Argument> arguments(trace().arguments.begin() + whole.first_argument,
                                      trace().arguments.begin() + whole.first_argument + whole.argument_count);
      arguments[product.rows] = Tensor(left(sequence));
      const uint32_t out = result(sequence);
      arguments.push_back(Tensor(out));
      Emit(biased ? "aten::addmm.out" : "aten::mm.out", uint64_t{1} << (arguments.size() - 1), arguments, {out});
    }
  }

  int64_t Wrap(const Edge& edge, int64_t block) const { return (block % edge.ranks + edge.ranks) % edge.ranks; }
  void Begin(const Edge& edge) {
    chunked_.insert(edge.product.at);
    for (const Product& other : edge.others) chunked_.insert(other.at);
    place_ = edge.product.at;
    while (static_cast<int64_t>(done_.size()) < edge.ranks) done_.push_back(next_event_++);
  }

  // Tokens go round the ranks; those that are here are multiplied while the next ones come.
  void ChunkGather(const Edge& edge) {
    Begin(edge);
    const Instruction& gather = rewriter_.At(edge.at);
    like_ = gather;
    const uint32_t local = InputId(edge.at, 1), buffer = StorageOf(InputId(edge.at, 0));
    const Argument group = trace().arguments[gather.first_argument + 2];
    const v1::DType dtype = GeometryOf(local).dtype;
    const int64_t k = GeometryOf(edge.product.left).sizes[1];
    const int64_t block = edge.batch * edge.tokens * k;
    const auto block_of = [&](int64_t rank) {
      return Dense(buffer, dtype, Wrap(edge, rank) * block, {edge.batch, edge.tokens, k});
    };
    const uint32_t own = block_of(edge.index);
    Emit("aten::copy_", 1, {Tensor(own), Tensor(local), {Argument::Kind::kConstant, rewriter_.AddConstant(false)}}, {own});
    Record(comm::kCompute, Fork());
    Wait(comm::kRotate, Fork());
    for (int64_t hop = 0; hop + 1 < edge.ranks; ++hop) {
      Rotate(block_of(edge.index - hop - 1), block_of(edge.index - hop), group, done_[hop]);
    }
    std::vector<Product> products = {edge.product};
    products.insert(products.end(), edge.others.begin(), edge.others.end());
    for (int64_t step = 0; step < edge.ranks; ++step) {
      like_ = rewriter_.At(edge.product.at);
      if (step > 0) Wait(comm::kCompute, done_[step - 1]);
      const int64_t rank = Wrap(edge, edge.index - step);
      for (const Product& product : products) {
        like_ = rewriter_.At(product.at);
        if (step == 0) Empty(users_[buffer].front(), product.result);
        const int64_t n = GeometryOf(product.result).sizes[1];
        Multiply(
            edge, product,
            [&](int64_t sequence) {
              return Dense(buffer, dtype, rank * block + sequence * edge.tokens * k, {edge.tokens, k});
            },
            [&](int64_t sequence) {
              const int64_t first = (sequence * edge.ranks + rank) * edge.tokens * n;
              return Dense(StorageOf(product.result), dtype, first, {edge.tokens, n});
            });
      }
    }
    rewriter_.Remove(edge.at);
    for (const Product& product : products) rewriter_.Remove(product.at);
    MoveReaders(edge, buffer);
  }

  // What looked at the gathered tokens before the product does so after it. A copy of them that nobody else reads goes.
  void MoveReaders(const Edge& edge, uint32_t buffer) {
    std::set<uint32_t> readers(users_[buffer].begin(), users_[buffer].end());
    if (edge.permuted != kNone) {
      const uint32_t copy = StorageOf(ResultId(edge.permuted));
      if (Uses(copy).size() == 2 + edge.others.size()) {
        readers.erase(edge.permuted);
        RemoveStorage(copy);
      } else {
        readers.insert(users_[copy].begin(), users_[copy].end());
      }
    }
    for (uint32_t i : readers) {
      if (i > edge.at && i < edge.product.at) rewriter_.Move(i, edge.product.at);
    }
  }
  void RemoveStorage(uint32_t storage) {
    for (uint32_t i : users_[storage]) rewriter_.Remove(i);
    if (frees_[storage] != kNone) rewriter_.Remove(frees_[storage]);
  }

  // The rows of other ranks are multiplied first, each rank's in turn, and go round while the next ones are: a rank adds its own
  // to what comes, in the order of worker/comm/gloo_communicator.cc.
  void ChunkScatter(const Edge& edge) {
    Begin(edge);
    const Instruction& scatter = rewriter_.At(edge.at);
    const uint32_t out = InputId(edge.at, 0), summed = StorageOf(InputId(edge.at, 1));
    const uint32_t maker = users_[StorageOf(out)].front();
    like_ = rewriter_.At(edge.product.at);
    const Argument group = trace().arguments[scatter.first_argument + 2];
    const Geometry left = GeometryOf(edge.product.left);
    const v1::DType dtype = GeometryOf(out).dtype;
    const int64_t n = GeometryOf(edge.product.result).sizes[1];
    const std::vector<int64_t> sizes = {edge.batch, edge.tokens, n};
    const auto make = [&] {
      return Empty(maker, Dense(NewStorage(summed, edge.batch * edge.tokens * n * ElementBytes(dtype)), dtype, 0, sizes));
    };
    const auto add = [&](uint32_t to, uint32_t what) {
      Emit("aten::add_.Tensor", 1, {Tensor(to), Tensor(what), Number(1)}, {to});
    };
    uint32_t sent = kNone, coming = kNone;
    for (int64_t step = 0; step < edge.ranks; ++step) {
      const int64_t rank = Wrap(edge, edge.index - 1 - step);
      const uint32_t rows = make();
      Multiply(
          edge, edge.product,
          [&](int64_t sequence) {
            Geometry part = left;
            part.sizes[0] = edge.tokens;
            part.offset += (sequence * edge.ranks + rank) * edge.tokens * left.strides[0];
            return rewriter_.AddValue(StorageOf(edge.product.left), std::move(part));
          },
          [&](int64_t sequence) { return Dense(StorageOf(rows), dtype, sequence * edge.tokens * n, {edge.tokens, n}); });
      if (edge.sum != kNone) {
        add(rows, rewriter_.AddValue(edge.added, {dtype, rank * edge.tokens * n, sizes, {edge.ranks * edge.tokens * n, n, 1}}));
      }
      if (step + 1 == edge.ranks) place_ = edge.at, like_ = scatter;  // what stands before it runs beside the last hop
      if (step > 0) {
        Wait(comm::kCompute, done_[step - 1]);
        Free(StorageOf(sent));
      }
      if (step + 1 == edge.ranks) {
        Emit("aten::add.out", 8, {Tensor(coming), Tensor(rows), Number(1), Tensor(out)}, {out});
        Free(StorageOf(coming));
        Free(StorageOf(rows));
        break;
      }
      if (step > 0) {
        add(rows, coming);
        Free(StorageOf(coming));
      }
      sent = rows;
      coming = make();
      Record(comm::kCompute, Fork());
      Wait(comm::kRotate, Fork());
      Rotate(coming, rows, group, done_[step]);
    }
    RemoveReplaced(edge, summed);
  }

  void RemoveReplaced(const Edge& edge, uint32_t summed) {
    rewriter_.Remove(edge.at);
    rewriter_.Remove(edge.product.at);
    if (edge.sum != kNone) rewriter_.Remove(edge.sum);
    RemoveStorage(StorageOf(edge.product.result));
    if (edge.permuted != kNone) RemoveStorage(summed);
  }

  int64_t Fork() const { return done_.back(); }  // of `ranks` events one is left over

  const int64_t rank_;
  Rewriter rewriter_;
  std::vector<std::vector<uint32_t>> users_;  // operators by storage
  std::vector<uint32_t> frees_;
  std::set<uint32_t> chunked_;  // products
  std::vector<int64_t> done_;   // events
  int64_t next_event_ = 0;
  uint32_t place_ = 0;
  Instruction like_;
};

}  // namespace

absl::StatusOr<Trace> AsyncTensorParallel(Trace trace) { return Chunking(std::move(trace)).Run(); }

}  // namespace legoai::graph
