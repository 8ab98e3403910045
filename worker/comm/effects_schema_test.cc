// The places of core/trace/effects.h are those of the schemas with which the operators are registered.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/trace/effects.h"
#include "worker/comm/ops.h"

namespace legoai::comm {
namespace {

std::map<std::string, int> PlacesOf(const c10::FunctionSchema& schema) {
  std::map<std::string, int> places;
  for (size_t i = 0; i < schema.arguments().size(); ++i) places[schema.arguments()[i].name()] = static_cast<int>(i);
  return places;
}

TEST(EffectsSchema, PlacesAreThoseOfTheSchemas) {
  (void)&AllReduce;  // ops.cc, which registers them, is linked
  for (const graph::EffectRow& row : graph::EffectRows()) {
    SCOPED_TRACE(row.name);
    const auto op = c10::Dispatcher::singleton().findSchema({std::string(row.name), ""});
    ASSERT_TRUE(op.has_value());
    const auto places = PlacesOf(op->schema());
    const auto at = [&](const char* name) { return places.count(name) > 0 ? places.at(name) : -1; };
    EXPECT_EQ(row.group, at("group"));
    EXPECT_EQ(row.peer, at("peer"));
    EXPECT_EQ(row.stream, at("stream"));
    EXPECT_EQ(row.event, at("event"));
    EXPECT_EQ(row.bytes, at("nbytes"));
    if (row.tensor >= 0) {
      EXPECT_EQ(op->schema().arguments()[row.tensor].type()->kind(), c10::TypeKind::TensorType);
    }
  }
}

TEST(EffectsSchema, NoOperatorWithAGroupOrAStreamIsLeftOut) {
  int found = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("lego::", 0) != 0) continue;
    const auto places = PlacesOf(c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), "").schema());
    if (places.count("group") + places.count("stream") + places.count("nbytes") == 0) continue;
    EXPECT_NE(graph::FindEffect(name.name), nullptr) << name.name;
    ++found;
  }
  EXPECT_EQ(found, static_cast<int>(graph::EffectRows().size()));
}

}  // namespace
}  // namespace legoai::comm
