// The pass "fuse" on Traces written by hand: what becomes one operator, where it runs, and what stays as it is. That fused
// operators compute the same is tested with their kernels (worker/graph/fused_operator_test.cc), on whole steps in
// tests/integration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/pipeline.h"
#include "core/trace/passes/testing/fuse_step.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using passes_testing::Fused;
using passes_testing::kShape;
using passes_testing::Operators;
using passes_testing::Peak;
using passes_testing::Step;
using Tensor = TraceBuilder::Tensor;

// silu(gate) up, as the forward of a gated feed-forward has it.
Trace SwiGlu(bool keeps_silu) {
  Step b;
  const Tensor gate = b.Input("gate", kShape), x = b.Input("x", kShape);
  const Tensor open = b.Silu(gate), up = b.Make("test::product", {x}), out = b.Mul(open, up);
  if (!keeps_silu) b.Done(open);
  return b.Ending(keeps_silu ? std::map<std::string, Tensor>{{"out", out}, {"open", open}, {"up", up}}
                             : std::map<std::string, Tensor>{{"out", out}, {"up", up}});
}

TEST(FuseElementwise, AProductWaitsForNothingAndWhatOnlyItReadsVanishes) {
  const Trace fused = Fused(SwiGlu(false));
  EXPECT_THAT(Operators(fused), ElementsAre("test::product", "fused aten::silu aten::mul.Tensor"));
  const std::string* const text = FusedKernelText(fused, fused.instructions.back());
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(*text,
            "loop 48\nin FLOAT32 {1}\nin FLOAT32 {1}\ndo aten::silu r0 > r2\ndo aten::mul.Tensor r2 r1 > r3\n"
            "make r3 FLOAT32 {1}/[2,3,8]{24,8,1}\n");
}

TEST(FuseElementwise, KeepsWhatOthersRead) {
  const Trace fused = Fused(SwiGlu(true));
  EXPECT_THAT(Operators(fused), ElementsAre("test::product", "fused aten::silu aten::mul.Tensor"));
  EXPECT_THAT(*FusedKernelText(fused, fused.instructions.back()), HasSubstr("make r2"));
}

// The gradient of silu comes after a product that reads the group's other result: it comes forward.
TEST(FuseElementwise, BringsAMemberForward) {
  Step b;
  b.phase = Phase::kBackward;
  const Tensor grad = b.Input("grad", kShape), open = b.Input("open", kShape);
  const Tensor up = b.Input("up", kShape), gate = b.Input("gate", kShape);
  const Tensor of_open = b.Mul(grad, up), of_up = b.Mul(grad, open);
  const Tensor product = b.Make("test::product", {of_up});
  const Tensor of_gate = b.Make("aten::silu_backward", {of_open, gate});
  b.Done(of_open);
  const Trace fused = Fused(b.Ending({{"product", product}, {"gate", of_gate}, {"up", of_up}}));
  EXPECT_THAT(Operators(fused), ElementsAre("fused aten::mul.Tensor aten::mul.Tensor aten::silu_backward", "test::product"));
}

// SiLU of the gate is computed again where its gradient reads the gate anyway: it is never written.
Trace SwiGluBothWays(bool writes_gate) {
  Step b;
  const Tensor gate = b.Input("gate", kShape), up = b.Input("up", kShape);
  const Tensor open = b.Silu(gate), out = b.Mul(open, up);
  const Tensor grad = b.Make("test::product", {out});
  if (writes_gate) b.Op("test::overwrite", {gate}, {}, 1);
  b.phase = Phase::kBackward;
  const Tensor of_open = b.Mul(grad, up), of_up = b.Mul(grad, open);
  b.Done(open);
  const Tensor product = b.Make("test::product", {of_up});
  const Tensor of_gate = b.Make("aten::silu_backward", {of_open, gate});
  b.Done(of_open);
  return b.Ending({{"out", out}, {"grad", grad}, {"product", product}, {"of_gate", of_gate}, {"of_up", of_up}});
}

TEST(FuseElementwise, ComputesAgainWhatCostsNoTraffic) {
  const Trace trace = SwiGluBothWays(false), fused = Fused(trace);
  EXPECT_THAT(Operators(fused), ElementsAre("fused aten::silu aten::mul.Tensor", "test::product",
                                            "fused aten::silu aten::mul.Tensor aten::mul.Tensor aten::silu_backward",
                                            "test::product"));
  EXPECT_EQ(StatisticsOf(trace).storage_bytes - StatisticsOf(fused).storage_bytes, 2 * 48 * 4) << "SiLU and its gradient";
}

TEST(FuseElementwise, KeepsWhatWouldComeOutOtherwise) {
  EXPECT_THAT(Operators(Fused(SwiGluBothWays(true))).front(), "fused aten::silu aten::mul.Tensor");
  const Trace fused = Fused(SwiGluBothWays(true));
  EXPECT_THAT(*FusedKernelText(fused, fused.instructions.front()), HasSubstr("make r2"));
}

// The sum in place comes between SiLU and the group that reads both.
TEST(FuseElementwise, DoesNotComputeAgainWhatWasWrittenSince) {
  Step b;
  const Tensor gate = b.Input("gate", kShape), up = b.Input("up", kShape);
  const Tensor open = b.Silu(gate);
  b.Op("aten::add_.Tensor", {open, up, int64_t{1}}, {open}, 1);
  const Tensor out = b.Mul(open, up), grad = b.Make("test::product", {out});
  b.phase = Phase::kBackward;
  const Tensor of_up = b.Mul(grad, open);
  const Tensor of_gate = b.Make("aten::silu_backward", {of_up, gate}), sum = b.Add(of_gate, up);
  b.Done(open), b.Done(of_up), b.Done(of_gate);
  const Trace fused = Fused(b.Ending({{"out", out}, {"grad", grad}, {"sum", sum}}));
  EXPECT_THAT(Operators(fused),
              ElementsAre("fused aten::silu aten::add_.Tensor aten::mul.Tensor", "test::product",
                          "fused aten::mul.Tensor aten::silu_backward aten::add.Tensor"));
}

// Of a group that takes too much memory those that came forward are not left out before those that read them: the product m,
// whose reader n would stay at the group's place.
TEST(FuseElementwise, LeavesNoReaderBeforeWhatItReads) {
  Step b;
  const Tensor p = b.Input("p", kShape), q = b.Input("q", kShape), r = b.Input("r", kShape);
  const Tensor a = b.Mul(p, q), product = b.Make("test::product", {a});
  const Tensor big = b.Make("test::make", {}, {2, 2, 3, 8});
  b.Done(big);
  const Tensor m = b.Mul(a, r), n = b.Mul(m, q), o = b.Make("aten::neg", {n});
  b.Done(n);
  Fused(b.Ending({{"a", a}, {"product", product}, {"m", m}, {"o", o}}));
}

struct OfNorm {
  Tensor grad, x, weight, rows, column;  // the last two: a number for each row
};
// Gives the gradient of the input; those of the weights are outputs.
Tensor AddNormGradient(Step* b, const OfNorm& of, bool is_layer_norm, const std::string& name,
                       std::map<std::string, Tensor>* outputs) {
  const Tensor of_x = b->New(v1::FLOAT32, {8, 8}), of_weight = b->New(v1::FLOAT32, {8});
  (*outputs)["weight" + name] = of_weight;
  if (!is_layer_norm) {
    b->Op("lego::rms_norm_backward", {of.grad, of.x, of.weight, of.rows}, {of_x, of_weight});
    return of_x;
  }
  const Tensor of_bias = b->New(v1::FLOAT32, {8});
  (*outputs)["bias" + name] = of_bias;
  b->Op("aten::native_layer_norm_backward",
        {of.grad, of.x, std::vector<int64_t>{8}, of.column, of.column, of.weight, of.weight, std::vector<bool>{true, true, true}},
        {of_x, of_weight, of_bias});
  return of_x;
}

// A random program of tensors of one shape, beside operators that pin groups, write what these read, hold memory for a while, or
// make an event; each tensor is freed somewhere behind its last use, or stays.
Trace RandomProgram(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  Step b;
  struct Known {
    Tensor tensor;
    bool is_input = false;
  };
  std::vector<Known> alive;
  for (const char* const name : {"p", "q", "r"}) alive.push_back({b.Input(name, {8, 8}), true});
  const Tensor row = b.Input("row", {8}), rows = b.Input("rows", {8}), column = b.Input("column", {8, 1});
  std::map<std::string, Tensor> outputs;
  const auto any = [&] { return alive[below(alive.size())].tensor; };
  const auto make = [&](const std::string& name, std::vector<TraceBuilder::Arg> arguments) {
    alive.push_back({b.Make(name, std::move(arguments), {8, 8})});
  };
  int64_t events = 0;
  const size_t operators = 8 + below(16);
  for (size_t i = 0; i < operators; ++i) {
    const Tensor x = any(), y = any(), z = any();
    switch (below(19)) {
      case 0: make("aten::add.Tensor", {x, y, int64_t{1}}); break;
      case 1:
      case 2: make("aten::mul.Tensor", {x, y}); break;
      case 3: make("aten::neg", {x}); break;
      case 4: make("aten::silu", {x}); break;
      case 5: make("aten::silu_backward", {x, y}); break;
      case 6: make("aten::addcmul", {x, y, z, int64_t{1}}); break;
      case 7: make("aten::mul.Tensor", {x, row}); break;
      case 8: b.Op("aten::add_.Tensor", {x, y, int64_t{1}}, {x}, 1); break;
      case 9: b.Op("test::overwrite", {x, y}, {}, 1); break;
      case 10:
      case 11: make("test::product", {x}); break;
      case 12: b.Done(b.Make("test::make", {}, {8, 8, static_cast<int64_t>(1 + below(4))})); break;
      case 13: b.RecordEvent(comm::kCompute, ++events); break;
      case 14: b.phase = below(4) == 0 ? Phase::kBackward : b.phase; break;
      case 15:
      case 16:
      case 17: alive.push_back({AddNormGradient(&b, {x, y, row, rows, column}, i % 3 == 0, absl::StrCat(i), &outputs)}); break;
      default: {
        const Tensor out = b.New(v1::FLOAT32, {8, 8}), rstd = b.New(v1::FLOAT32, {8, 1});
        b.Op("lego::rms_norm", {x, row, 1e-5}, {out, rstd});
        alive.push_back({out});
        outputs[absl::StrCat("rstd", i)] = rstd;
      }
    }
    const size_t dead = below(alive.size());
    if (below(3) != 0 || alive[dead].is_input || alive.size() < 5) continue;
    b.Done(alive[dead].tensor);
    alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(dead));
  }
  for (size_t i = 0; i < alive.size(); ++i) {
    if (alive[i].is_input) continue;
    if (below(2) == 0) {
      b.Done(alive[i].tensor);
    } else {
      outputs[absl::StrCat("out", i)] = alive[i].tensor;
    }
  }
  return b.Ending(outputs);
}

TEST(FuseElementwise, KeepsRandomProgramsAsTheyWere) {
  const unsigned first = std::random_device()();
  std::printf("seed %u\n", first);
  int64_t fused_operators = 0;
  for (unsigned seed = first; seed < first + 2000; ++seed) {
    const Trace trace = RandomProgram(seed);
    ASSERT_THAT(TraceFindings(trace), IsEmpty()) << "the test's own, seed " << seed;
    const Trace fused = FuseElementwise(trace).value();
    ASSERT_THAT(TraceFindings(fused), IsEmpty()) << "seed " << seed << "\n" << trace.Dump(true) << fused.Dump(true);
    ASSERT_THAT(PassFindings(trace, fused), IsEmpty()) << "seed " << seed << "\n" << trace.Dump(true) << fused.Dump(true);
    for (const Instruction& instruction : fused.instructions) fused_operators += FusedKernelText(fused, instruction) != nullptr;
    ASSERT_LE(Peak(fused), Peak(trace)) << "seed " << seed;
    const std::map<std::string, int64_t> kernels = {{"test::product", 900}, {"test::overwrite", 300}, {"aten::add.Tensor", 500}};
    ASSERT_LE(Peak(fused, kernels), Peak(trace, kernels)) << "seed " << seed << "\n" << trace.Dump(true) << fused.Dump(true);
  }
  EXPECT_GT(fused_operators, 1000);
}

// What a member reads is written in between.
TEST(FuseElementwise, BringsNoMemberBeforeWhatItReads) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape), gate = b.Input("gate", kShape);
  const Tensor a = b.Mul(x, y);
  b.Op("test::overwrite", {gate, a}, {}, 1);
  const Tensor out = b.Make("aten::silu_backward", {a, gate});
  const Trace fused = Fused(b.Ending({{"a", a}, {"out", out}}));
  EXPECT_THAT(Operators(fused), Not(::testing::Contains(HasSubstr("fused"))));
}

// The product comes forward, since SiLU cannot wait.
TEST(FuseElementwise, WaitsForNobodyWhoWritesWhatItReads) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape);
  const Tensor a = b.Silu(x);
  b.Op("test::overwrite", {x}, {}, 1);
  const Tensor out = b.Mul(a, y);
  b.Done(a);
  EXPECT_THAT(Operators(Fused(b.Ending({{"out", out}}))), ElementsAre("fused aten::silu aten::mul.Tensor", "test::overwrite"));
}

TEST(FuseElementwise, StaysBeforeAnEventThatOthersWaitFor) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape);
  const Tensor a = b.Silu(x);
  b.RecordEvent(comm::kCompute, 1);
  b.WaitEvent(comm::kReduceScatter, 1);
  const Tensor copy = b.New(v1::FLOAT32, kShape);
  b.Op("aten::clone", {a}, {copy}).stream = comm::kReduceScatter;
  const Tensor out = b.Mul(a, y);
  const Trace fused = Fused(b.Ending({{"out", out}, {"a", a}, {"copy", copy}}));
  EXPECT_EQ(Operators(fused).front(), "fused aten::silu aten::mul.Tensor");
}

// Phases and microbatches keep their own operators.
TEST(FuseElementwise, CrossesNoPhase) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape);
  const Tensor a = b.Silu(x);
  b.phase = Phase::kBackward;
  const Tensor out = b.Mul(a, y);
  b.Done(a);
  EXPECT_THAT(Operators(Fused(b.Ending({{"out", out}}))), ElementsAre("aten::silu", "aten::mul.Tensor"));
}

// A view of another shape is not what the group writes.
TEST(FuseElementwise, LeavesWhatIsReadOtherwiseThanItWasMade) {
  Step b;
  const Tensor x = b.Input("x", {4, 4}), y = b.Input("y", {4, 4});
  const Tensor a = b.Make("aten::silu", {x}, {4, 4});
  const Tensor turned = b.View(b.StorageOf(a), v1::FLOAT32, {4, 4}, {1, 4});
  b.Op("aten::t", {a}, {turned});
  const Tensor out = b.Make("aten::mul.Tensor", {turned, y}, {4, 4});
  b.Done(a);
  EXPECT_THAT(Operators(Fused(b.Ending({{"out", out}}))), ElementsAre("aten::silu", "aten::t", "aten::mul.Tensor"));
}

// One number of each row, which would be one of each column.
TEST(FuseElementwise, LeavesNumbersOfRowsThatAreReadAlongThem) {
  Step b;
  const Tensor x = b.Input("x", {8, 8}), weight = b.Input("weight", {8});
  const Tensor out = b.New(v1::FLOAT32, {8, 8}), rstd = b.New(v1::FLOAT32, {8, 1});
  b.Op("lego::rms_norm", {x, weight, 1e-5}, {out, rstd});
  const Tensor by_row = b.Make("aten::mul.Tensor", {out, rstd}, {8, 8});
  const Tensor turned = b.View(b.StorageOf(rstd), v1::FLOAT32, {8}, {1});
  b.Op("aten::view", {rstd}, {turned});
  const Tensor by_column = b.Make("aten::mul.Tensor", {out, turned}, {8, 8});
  const Trace fused = Fused(b.Ending({{"out", out}, {"rstd", rstd}, {"by_column", by_column}, {"by_row", by_row}}));
  EXPECT_THAT(Operators(fused), ElementsAre("fused lego::rms_norm aten::mul.Tensor", "aten::view", "aten::mul.Tensor"));
  // A view that lies the same is no hindrance.
  Step c;
  const Tensor y = c.Input("y", {8, 8}), other = c.Input("other", {8});
  const Tensor whole = c.New(v1::FLOAT32, {8, 8}), numbers = c.New(v1::FLOAT32, {8});
  c.Op("lego::rms_norm", {y, other, 1e-5}, {whole, numbers});
  const Tensor columns = c.View(c.StorageOf(numbers), v1::FLOAT32, {8, 1}, {1, 1});
  c.Op("aten::view", {numbers}, {columns});
  const Tensor scaled = c.Make("aten::mul.Tensor", {whole, columns}, {8, 8});
  EXPECT_THAT(Operators(Fused(c.Ending({{"whole", whole}, {"numbers", numbers}, {"scaled", scaled}}))),
              ElementsAre("fused lego::rms_norm aten::mul.Tensor", "aten::view"));
}

TEST(FuseElementwise, WritesInPlaceWhatWasWrittenInPlace) {
  Step b;
  const Tensor sum = b.Input("sum", kShape), x = b.Input("x", kShape);
  const Tensor a = b.Silu(x);
  b.Op("aten::add_.Tensor", {sum, a, int64_t{1}}, {sum}, 1);
  b.Done(a);
  const Trace fused = Fused(b.Ending({}));
  EXPECT_THAT(Operators(fused), ElementsAre("fused aten::silu aten::add_.Tensor"));
  EXPECT_THAT(*FusedKernelText(fused, fused.instructions.back()), HasSubstr("write r3"));
}

// x cos + roll(x) sin, of heads that lie behind each other.
TEST(FuseElementwise, RotatesInOne) {
  Step b;
  const Tensor x = b.Input("x", {2, 3, 4, 8}), table = b.Input("table", {16, 8});
  const Tensor cos = b.View(b.StorageOf(table), v1::FLOAT32, {3, 1, 8}, {8, 8, 1});
  const Tensor first = b.Make("aten::mul.Tensor", {x, cos}, {2, 3, 4, 8});
  const Tensor rolled = b.Make("aten::roll", {x, std::vector<int64_t>{4}, std::vector<int64_t>{3}}, {2, 3, 4, 8});
  const Tensor out = b.Make("aten::addcmul", {first, rolled, cos, int64_t{1}}, {2, 3, 4, 8});
  b.Done(first), b.Done(rolled);
  const Trace fused = Fused(b.Ending({{"out", out}}));
  EXPECT_THAT(Operators(fused), ElementsAre("fused aten::mul.Tensor aten::roll aten::addcmul"));
  EXPECT_THAT(*FusedKernelText(fused, fused.instructions.back()),
              HasSubstr("loop 2,3,4,8\nin FLOAT32 {96,32,8,1}\nin FLOAT32 {0,8,0,1}\n"));
}

TEST(FuseElementwise, NormalizesTheSumItMakes) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape), weight = b.Input("weight", {8});
  const Tensor sum = b.Add(x, y), out = b.New(v1::FLOAT32, kShape), rstd = b.New(v1::FLOAT32, {2, 3});
  b.Op("lego::rms_norm", {sum, weight, 1e-5}, {out, rstd});
  const Trace fused = Fused(b.Ending({{"sum", sum}, {"out", out}, {"rstd", rstd}}));
  EXPECT_THAT(Operators(fused), ElementsAre("fused aten::add.Tensor lego::rms_norm"));
  EXPECT_THAT(*FusedKernelText(fused, fused.instructions.back()), HasSubstr("loop 6,8\n"));
}

// A sum and its norm, whose second operand dies with the sum: as one operator they hold it beside what the norm makes.
// `elsewhere`: elements that the step holds at another time.
Trace SumAndNorm(int64_t elsewhere) {
  Step b;
  const Tensor weight = b.Input("weight", {8}), x = b.Make("test::make", {}), y = b.Make("test::make", {});
  const Tensor sum = b.Add(x, y);
  b.Done(x), b.Done(y);
  const Tensor out = b.New(v1::FLOAT32, kShape), rstd = b.New(v1::FLOAT32, {2, 3});
  b.Op("lego::rms_norm", {sum, weight, 1e-5}, {out, rstd});
  b.Done(b.Make("test::make", {}, {elsewhere}));
  return b.Ending({{"sum", sum}, {"out", out}, {"rstd", rstd}});
}

TEST(FuseElementwise, HoldsMoreWhereTheStepHasRoom) {
  // In one they hold 824 bytes, by themselves 608 and 440; the step holds 440 and what is elsewhere.
  EXPECT_THAT(Operators(Fused(SumAndNorm(96))),
              ElementsAre("test::make", "test::make", "fused aten::add.Tensor lego::rms_norm", "test::make"));
  EXPECT_THAT(Operators(Fused(SumAndNorm(95))),
              ElementsAre("test::make", "test::make", "aten::add.Tensor", "lego::rms_norm", "test::make"));
}

// Two groups over one another, each of which holds what it casts for longer: 960 and 964 bytes one by one, 1056 together.
Trace TwoGroups(int64_t elsewhere) {
  Step b;
  Tensor made[2], cast[2], sums[2];
  for (int i = 0; i < 2; ++i) made[i] = b.Make("test::make", {}), cast[i] = b.New(v1::BFLOAT16, kShape);
  for (int i = 0; i < 2; ++i) {
    b.Op("aten::_to_copy", {made[i]}, {cast[i]});
    b.Done(made[i]);
  }
  for (int i = 0; i < 2; ++i) {
    const Tensor other = b.Input("other" + std::to_string(i), kShape), product = b.New(v1::FLOAT32, kShape);
    b.Op("aten::mul.Tensor", {cast[i], other}, {product});
    sums[i] = b.Make("aten::sum", {product}, {1});
    b.Done(product);
  }
  b.Done(b.Make("test::make", {}, {elsewhere}));
  return b.Ending({{"a", cast[0]}, {"b", cast[1]}, {"c", sums[0]}, {"d", sums[1]}});
}

TEST(FuseElementwise, GroupsShareTheRoom) {
  for (const auto& [elsewhere, groups] : std::map<int64_t, int64_t>{{93, 0}, {94, 1}, {117, 1}, {118, 2}}) {
    const std::vector<std::string> names = Operators(Fused(TwoGroups(elsewhere)));
    EXPECT_EQ(std::count(names.begin(), names.end(), "fused aten::_to_copy aten::mul.Tensor"), groups) << elsewhere;
  }
}

// What an operator takes inside is not known here: nothing more is held beside it, however much the step holds elsewhere.
TEST(FuseElementwise, HoldsNothingMoreBesideKernelsThatTakeMemory) {
  for (const char* const between : {"aten::neg", "aten::mm"}) {
    Step b;
    const Tensor made = b.Make("test::make", {}), y = b.Input("y", kShape);
    const Tensor m = b.Input("m", {4, 4}), a = b.New(v1::BFLOAT16, kShape);
    b.Op("aten::_to_copy", {made}, {a});
    b.Done(made);
    const Tensor other = b.New(v1::FLOAT32, {4, 4});
    if (between == std::string("aten::mm")) {
      b.Op(between, {m, m}, {other});
    } else {
      b.Op(between, {m}, {other});
    }
    const Tensor out = b.New(v1::FLOAT32, kShape);
    b.Op("aten::mul.Tensor", {a, y}, {out});
    b.Done(b.Make("test::make", {}, {1000}));
    const auto names = Operators(Fused(b.Ending({{"a", a}, {"other", other}, {"out", out}})));
    const bool is_fused = std::find(names.begin(), names.end(), "fused aten::_to_copy aten::mul.Tensor") != names.end();
    EXPECT_EQ(is_fused, between == std::string("aten::neg")) << between;
  }
}

// Waiting would hold a large input longer than the results are apart.
TEST(FuseElementwise, HoldsNoMoreMemory) {
  Step b;
  const Tensor made = b.Make("test::make", {});
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape);
  const Tensor a = b.New(v1::BFLOAT16, kShape);
  b.Op("aten::_to_copy", {made}, {a});
  b.Done(made);
  const Tensor other = b.Make("test::make", {x});
  const Tensor out = b.New(v1::FLOAT32, kShape);
  b.Op("aten::mul.Tensor", {a, y}, {out});
  const Trace trace = b.Ending({{"a", a}, {"other", other}, {"out", out}});
  EXPECT_THAT(Operators(Fused(trace)), ElementsAre("test::make", "aten::_to_copy", "test::make", "aten::mul.Tensor"));
}

TEST(FuseElementwise, LeavesOtherTypesAndNumbersAlone) {
  Step b;
  const Tensor x = b.Input("x", kShape);
  const uint32_t storage = b.AddStorage(96, StorageKind::kExternal, Category::kInput, "half");
  const Tensor half = b.View(storage, v1::FLOAT16, kShape, {24, 8, 1});
  const Tensor a = b.Make("aten::mul.Tensor", {x, half}), out = b.Silu(a);
  b.Done(a);
  EXPECT_THAT(Operators(Fused(b.Ending({{"out", out}}))), ElementsAre("aten::mul.Tensor", "aten::silu"));
}

// The check of passes sees a group that is put where its inputs are others.
TEST(FuseElementwise, IsCheckedByContents) {
  Step b;
  const Tensor x = b.Input("x", kShape), y = b.Input("y", kShape);
  const Tensor out = b.Mul(b.Silu(x), y);
  b.Op("test::overwrite", {y}, {}, 1);
  const Trace trace = b.Ending({{"out", out}});
  Trace wrong = FuseElementwise(trace).value();
  ASSERT_EQ(Operators(wrong).size(), 2u);
  std::swap(wrong.instructions.front(), wrong.instructions.back());
  EXPECT_THAT(PassFindings(trace, wrong), Not(IsEmpty()));
}

TEST(FusedKernel, IsReadAsItIsWritten) {
  const std::string text =
      "loop 6,8\nin FLOAT32 {8,1}\nin BFLOAT16 {0,1}\ndo aten::add.Tensor r0 r0 0.5 > r2\n"
      "do lego::rms_norm r2 r1 1.0000000000000001e-05 > r3 r4\nwrite r2 FLOAT32 {8,1}/[6,8]{8,1}\n"
      "make r3 BFLOAT16 {8,1}/[2,3,8]{24,8,1}\nmake r4 FLOAT32 {1,0}/[2,3]{3,1}\n";
  EXPECT_EQ(TextOf(ParseFusedKernel(text).value()), text);
}

TEST(FusedKernel, IsRefusedWithTheLineThatIsNone) {
  for (const char* const line : {"in FLOAT32 {1,1}", "in FLOAT16 {1}", "do aten::mm r0 r0 > r1", "do aten::neg r7 > r1",
                                 "do aten::neg r0 > r5", "do aten::add.Tensor r0 r0 r0 > r1", "make r9 FLOAT32 {1}/[8]{1}",
                                 "make r0 FLOAT32 {1}", "loop 0", "system"}) {
    const auto parsed = ParseFusedKernel("loop 8\nin FLOAT32 {1}\n" + std::string(line) + "\n");
    EXPECT_THAT(parsed.status().message(), HasSubstr(line));
  }
  EXPECT_FALSE(ParseFusedKernel("loop 8\nin FLOAT32 {1}\n").ok()) << "it writes nothing";
  EXPECT_FALSE(ParseFusedKernel("").ok());
}

}  // namespace
}  // namespace legoai::graph
