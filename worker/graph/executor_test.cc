// What the executor refuses. That it runs captured steps bit by bit is tested in simulator/capture.
#include "worker/graph/executor.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/trace/testing/trace_builder.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::graph {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// z = x + 2 * y
Trace Sum() {
  TraceBuilder b;
  auto input = [&](const char* name) {
    return b.View(b.AddStorage(16, StorageKind::kExternal, Category::kInput, name), v1::FLOAT32, {4}, {1});
  };
  const auto x = input("x"), y = input("y"), z = b.New(v1::FLOAT32, {4});
  b.module = b.AddModule("layers.0");
  b.Op("aten::add.Tensor", {x, y, int64_t{2}}, {z});
  Trace trace = b.trace();
  trace.inputs = {{"x", x.value}, {"y", y.value}};
  trace.outputs = {{"z", z.value}};
  return trace;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ExecutorTest, RunsAsOftenAsAsked) {
  const Trace trace = Sum();
  auto executor = Executor::Create(trace, c10::kCPU).value();
  const at::Tensor x = at::full({4}, 1.0), y = at::full({4}, 3.0);
  ASSERT_TRUE(executor->Bind("x", x).ok());
  ASSERT_TRUE(executor->Bind("y", y).ok());
  for (int run = 0; run < 3; ++run) {
    y.fill_(run);
    ASSERT_TRUE(executor->Run().ok());
    EXPECT_EQ(executor->Output("z")->const_data_ptr<float>()[3], 1 + 2 * run);
  }
  EXPECT_EQ(executor->OperatorsPerRun(), 1);
}

// Recomputation is of the backward that it is for, and what is of no phase is left out. Operators are noted when it is asked for.
TEST(ExecutorTest, NotesItsPhasesInTheTimeline) {
  TraceBuilder b;
  const auto x = b.Input("x", {4});
  for (const Phase phase :
       {Phase::kInit, Phase::kForward, Phase::kForward, Phase::kBackward, Phase::kRecompute, Phase::kOptimizer}) {
    b.phase = phase;
    b.Op("aten::add.Tensor", {x, x, int64_t{1}}, {b.New(v1::FLOAT32, {4})});
  }
  const Trace trace = b.trace();
  auto executor = Executor::Create(trace, c10::kCPU).value();
  ASSERT_TRUE(executor->Bind("x", at::full({4}, 1.0)).ok());
  for (const bool traced : {false, true}) {
    comm::StepTimeline timeline;
    timeline.Begin();
    ASSERT_TRUE((traced ? executor->RunTraced() : executor->Run()).ok());
    const auto times = timeline.End().value();
    std::vector<Phase> phases;
    for (const auto& phase : times.phases) {
      phases.push_back(phase.phase);
      EXPECT_GT(phase.span.length_ns(), 0);
    }
    EXPECT_THAT(phases, ElementsAre(Phase::kForward, Phase::kBackward, Phase::kOptimizer));
    std::vector<int64_t> operators;
    for (const auto& op : times.operators) operators.push_back(op.instruction);
    if (traced) {
      EXPECT_THAT(operators, ElementsAre(0, 1, 2, 3, 4, 5));
    } else {
      EXPECT_THAT(operators, IsEmpty());
    }
  }
}

TEST(ExecutorTest, UnknownOperatorsAndNames) {
  Trace trace = Sum();
  auto executor = Executor::Create(trace, c10::kCPU).value();
  EXPECT_THAT(Message(executor->Bind("w", at::full({4}, 1.0))), HasSubstr("no input w"));
  EXPECT_THAT(Message(executor->Output("w").status()), HasSubstr("no output w"));
  trace.operators[0].name = "lego::no_such_operator";
  EXPECT_THAT(Message(Executor::Create(trace, c10::kCPU).status()), HasSubstr("lego::no_such_operator is not registered"));
}

TEST(ExecutorTest, InputsMustFit) {
  const Trace trace = Sum();
  auto executor = Executor::Create(trace, c10::kCPU).value();
  EXPECT_THAT(Message(executor->Bind("x", at::full({5}, 1.0))), AllOf(HasSubstr("input x"), HasSubstr("[4]"), HasSubstr("[5]")));
  EXPECT_FALSE(executor->Bind("x", at::full({4}, 1.0, at::kDouble)).ok());
  EXPECT_FALSE(executor->Bind("x", at::full({4, 2}, 1.0).select(1, 0)).ok());
  ASSERT_TRUE(executor->Bind("x", at::full({4}, 1.0)).ok());
  EXPECT_THAT(Message(executor->Run()),
              AllOf(HasSubstr("in 'layers.0'"), HasSubstr("aten::add.Tensor"), HasSubstr("y is not bound")));
}

TEST(ExecutorTest, AResultThatIsNotAsRecordedIsRefused) {
  Trace trace = Sum();
  trace.values[trace.outputs["z"]].geometry = trace.geometries.size();
  trace.geometries.push_back({v1::FLOAT32, 0, {2, 2}, {2, 1}});
  auto executor = Executor::Create(trace, c10::kCPU).value();
  for (const char* name : {"x", "y"}) ASSERT_TRUE(executor->Bind(name, at::full({4}, 1.0)).ok());
  EXPECT_THAT(Message(executor->Run()), HasSubstr("gave sizes [4]"));
}

TEST(IValueConstantTest, RoundTrips) {
  const Constant constants[] = {std::monostate(),
                                true,
                                int64_t{-3},
                                2.5,
                                std::string("mean"),
                                std::vector<int64_t>{1, 2},
                                std::vector<double>{0.5},
                                std::vector<bool>{true, false},
                                DeviceConstant()};
  for (const Constant& constant : constants) {
    EXPECT_TRUE(ToConstant(ToIValue(constant, *c10::AnyType::get(), c10::kCPU)) == constant) << constant.index();
  }
  const auto scalars = c10::ListType::create(c10::NumberType::get());
  for (const Constant& constant : {Constant(std::vector<double>{1.0, 0.5}), Constant(std::vector<int64_t>{1, 2})}) {
    const c10::IValue list = ToIValue(constant, *scalars, c10::kCPU);
    EXPECT_EQ(list.toList().elementType()->kind(), c10::TypeKind::NumberType);
    EXPECT_TRUE(ToConstant(list) == constant);
  }
  for (const Constant& number : {Constant(2.0), Constant(int64_t{2}), Constant(true)}) {
    const at::Tensor tensor = ToWrappedNumber(number);
    EXPECT_TRUE(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    EXPECT_TRUE(WrappedNumber(tensor) == number);
  }
  EXPECT_THROW(ToConstant(c10::IValue(c10::complex<double>(1, 2))), c10::Error);
  EXPECT_THROW(ToDType(at::kComplexFloat), c10::Error);
}

}  // namespace
}  // namespace legoai::graph
