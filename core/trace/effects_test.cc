#include "core/trace/effects.h"

#include <gtest/gtest.h>

#include <set>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

TEST(Effects, AreFoundByName) {
  std::set<std::string_view> names, labels;
  for (const EffectRow& row : EffectRows()) {
    EXPECT_EQ(FindEffect(row.name), &row);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(labels.insert(row.label).second) << row.label;
  }
  EXPECT_EQ(FindEffect("lego::dropout"), nullptr);
  EXPECT_EQ(FindEffect("aten::mm"), nullptr);
  EXPECT_EQ(FindEffect(""), nullptr);
}

class EffectsOfTest : public ::testing::Test {
 protected:
  const Instruction& Last() const { return builder_.trace().instructions.back(); }
  const char* Missing() const { return MissingOperand(builder_.trace(), Last()); }

  TraceBuilder builder_;
  TraceBuilder::Tensor tensor_ = builder_.New(v1::FLOAT32, {4});
  int64_t group_ = builder_.AddGroup(mesh::Dim::kPp, {0, 1, 2});
};

TEST_F(EffectsOfTest, Events) {
  builder_.RecordEvent(3, 7);
  ASSERT_TRUE(EventOf(builder_.trace(), Last()));
  EXPECT_TRUE(EventOf(builder_.trace(), Last())->is_record);
  EXPECT_EQ(EventOf(builder_.trace(), Last())->stream, 3);
  EXPECT_EQ(EventOf(builder_.trace(), Last())->event, 7);
  builder_.WaitEvent(0, 7);
  EXPECT_FALSE(EventOf(builder_.trace(), Last())->is_record);
  EXPECT_EQ(Missing(), nullptr);
  builder_.Op("lego::wait_event", {int64_t{0}, 1.5}, {});
  EXPECT_FALSE(EventOf(builder_.trace(), Last()));
  EXPECT_STREQ(Missing(), "no stream or event");
  builder_.Op("aten::mm", {tensor_, tensor_}, {tensor_});
  EXPECT_FALSE(EventOf(builder_.trace(), Last()));
  EXPECT_EQ(Missing(), nullptr);
}

TEST_F(EffectsOfTest, Resizes) {
  builder_.Op("lego::resize_storage_", {tensor_, int64_t{64}}, {}, 1);
  ASSERT_TRUE(StorageResizeOf(builder_.trace(), Last()));
  EXPECT_EQ(StorageResizeOf(builder_.trace(), Last())->storage, builder_.StorageOf(tensor_));
  EXPECT_EQ(StorageResizeOf(builder_.trace(), Last())->bytes, 64);
  builder_.Op("lego::resize_storage_", {tensor_, true}, {}, 1);
  EXPECT_FALSE(StorageResizeOf(builder_.trace(), Last()));
  EXPECT_STREQ(Missing(), "no size");
}

TEST_F(EffectsOfTest, WhatACallLacksIsNamed) {
  builder_.Op("lego::send", {tensor_, group_, int64_t{1}}, {});
  EXPECT_EQ(Missing(), nullptr);
  builder_.Op("lego::send", {tensor_, group_, int64_t{2}}, {});
  EXPECT_STREQ(Missing(), "no peer of its group");
  builder_.Op("lego::recv", {tensor_, group_}, {}, 1);
  EXPECT_STREQ(Missing(), "no peer of its group");
  builder_.Op("lego::all_reduce_", {tensor_, group_ + 1, int64_t{0}}, {}, 1);
  EXPECT_STREQ(Missing(), "no group of the Trace");
  builder_.Op("lego::all_gather_into", {int64_t{1}, tensor_, group_}, {}, 1);
  EXPECT_STREQ(Missing(), "no tensor");
}

}  // namespace
}  // namespace legoai::graph
