#include "core/trace/instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/trace/effects.h"
#include "core/trace/testing/program_test_util.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;

// Two microbatches, each with a tensor of its own, which is born, recorded behind an event of its own and freed.
struct Example {
  TraceBuilder builder;
  TraceBuilder::Tensor weight = builder.Input("model.layers.3.weight", {4});

  Example() {
    builder.module = builder.AddModule("model.layers.3.mlp");
    for (const int64_t event : {5, 6}) {
      const TraceBuilder::Tensor own = builder.New(v1::FLOAT32, {8});
      builder.Op("aten::mul.Tensor", {weight, weight}, {own});
      builder.RecordEvent(4, event);
      builder.Free(builder.StorageOf(own));
    }
  }

  // The second of the two stands for the third and the fourth microbatch too.
  Instances Four() const {
    Instances instances;
    instances.pieces = {kSharedPiece, 0, 1};
    instances.places = {0, 0, 0};
    instances.bindings = {{3, kUnbound}, {kUnbound, 4}, {kUnbound, 5}, {kUnbound, 6}};
    instances.storages = 7;
    for (int32_t m = 0; m < 4; ++m) {
      Instance instance;
      instance.begin = m == 0 ? 0 : 3;
      instance.end = instance.begin + 3;
      instance.position = 3 * m;
      instance.binding = m;
      instance.action = instance.microbatch = m;
      instance.before = 0;
      instance.steps = m < 2 ? 0 : m - 1;
      instances.list.push_back(instance);
    }
    return instances;
  }
};

TEST(Flatten, OfTheWholeIsTheTrace) {
  const Example example;
  Trace trace = example.builder.trace();
  for (Instruction& instruction : trace.instructions) instruction.phase = Phase::kForward;  // deaths too, as a recorder has it
  const Trace flat = Flatten(trace, WholeOf(trace));
  EXPECT_EQ(flat.Dump(true), trace.Dump(true));
}

TEST(Flatten, GivesEachInstanceItsStoragesAndGrownIntegers) {
  const Example example;
  const Trace flat = Flatten(example.builder.trace(), example.Four());
  EXPECT_EQ(flat.storages.size(), 5) << "the weight, and one of each microbatch";
  std::vector<int64_t> events, freed, microbatches;
  for (const Instruction& instruction : flat.instructions) {
    if (instruction.kind == Instruction::Kind::kFree) freed.push_back(instruction.immediate);
    if (const auto use = EventOf(flat, instruction)) events.push_back(use->event);
    if (instruction.kind == Instruction::Kind::kOperator) microbatches.push_back(instruction.microbatch);
  }
  EXPECT_THAT(events, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(freed, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(microbatches, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST(Flatten, NamesTheLayersOfItsRank) {
  const Example example;
  Instances instances = example.Four();
  instances.layer_shifts = {{0, 4}};
  const Trace flat = Flatten(example.builder.trace(), instances);
  EXPECT_THAT(flat.modules, ElementsAre("", "model.layers.7.mlp"));
  EXPECT_EQ(flat.inputs.begin()->first, "model.layers.7.weight");
}

TEST(Instances, CountPositions) {
  const Instances four = Example().Four();
  EXPECT_EQ(four.positions(), 12);
  EXPECT_EQ(four.list[2].PositionOf(4), 7);
  EXPECT_EQ(four.list[2].Before(4), 1);
  EXPECT_EQ(four.list[1].Before(4), 4) << "nothing grows";
  EXPECT_EQ(four.StorageOf(four.list[2], 0), 0);
  EXPECT_EQ(four.StorageOf(four.list[2], 2), 5);
}

TEST(ShiftLayer, ChangesTheNumberAlone) {
  EXPECT_EQ(ShiftLayer("model.layers.3.mlp", {{0, 4}}), "model.layers.7.mlp");
  EXPECT_EQ(ShiftLayer("model.layers.13", {{0, -4}}), "model.layers.9");
  EXPECT_EQ(ShiftLayer("model.norm", {{0, 4}}), "model.norm");
  EXPECT_EQ(ShiftLayer("model.layers.x.mlp", {{0, 4}}), "model.layers.x.mlp");
}

TEST(ShiftLayer, ShiftsEachRunOfLayersByItsOwn) {
  const std::vector<LayerShift> up_and_down = {{2, 4}, {10, -4}};
  EXPECT_EQ(ShiftLayer("model.layers.1.mlp", up_and_down), "model.layers.1.mlp");
  EXPECT_EQ(ShiftLayer("model.layers.2.mlp", up_and_down), "model.layers.6.mlp");
  EXPECT_EQ(ShiftLayer("model.layers.9.mlp", up_and_down), "model.layers.13.mlp");
  EXPECT_EQ(ShiftLayer("model.layers.10.mlp", up_and_down), "model.layers.6.mlp");
}

TEST(TimesRun, CountsTheInstancesThatHoldAnInstruction) {
  const Example example;
  EXPECT_THAT(TimesRun(example.builder.trace(), example.Four()), ElementsAre(1, 1, 1, 3, 3, 3));
  EXPECT_THAT(TimesRun(example.builder.trace(), WholeOf(example.builder.trace())), ElementsAre(1, 1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace legoai::graph
