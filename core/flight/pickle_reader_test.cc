#include "core/flight/pickle_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace legoai::comm {
namespace {

using Json = nlohmann::ordered_json;

std::string Bytes(const std::string& name) {
  std::ifstream file("core/flight/testdata/pickle/" + name, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  EXPECT_FALSE(all.str().empty()) << name;
  return all.str();
}

// Reads what follows the protocol's number.
absl::StatusOr<Json> ReadOpcodes(const std::string& opcodes) { return ReadPickle("\x80\x02" + opcodes); }

void ExpectRefused(const absl::StatusOr<Json>& read, const std::string& part) {
  ASSERT_FALSE(read.ok()) << read->dump();
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status();
}

TEST(ReadPickle, ReadsEveryKindOfValue) {
  const auto json = ReadPickle(Bytes("values.pickle"));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["integers"].dump(),
            "[0,1,-1,255,256,65535,65536,-2147483648,2147483648,-9223372036854775808,9223372036854775807]");
  EXPECT_EQ((*json)["floats"], Json({0.0, -1.5, 1e300}));
  EXPECT_EQ((*json)["others"].dump(), R"([true,false,null,"","Größe",[],[1],[1,2],[1,2,3],[1,2,3,4],[],{}])");
  ASSERT_EQ((*json)["many"].size(), 3000u);
  EXPECT_EQ((*json)["many"][2999], 2999);
}

TEST(ReadPickle, LeavesOutWhatIsNotWanted) {
  const std::string bytes = Bytes("nccl_trace_rank_0");
  EXPECT_EQ((*ReadPickle(bytes))["entries"][0]["frames"][0]["line"], 42);
  EXPECT_FALSE((*ReadPickle(bytes, "frames"))["entries"][0].contains("frames"));
}

TEST(ReadPickle, RefusesWhatCouldRunSomething) {
  ExpectRefused(ReadPickle(Bytes("calls_a_function.pickle")), "opcode GLOBAL is refused");
  ExpectRefused(ReadOpcodes("cos\nsystem\n(X\x02\x00\x00\x00lstR."), "byte 2: opcode GLOBAL is refused");
  for (const auto& [opcode, name] : std::vector<std::pair<std::string, std::string>>{{"R", "REDUCE"},
                                                                                     {"b", "BUILD"},
                                                                                     {"i", "INST"},
                                                                                     {"o", "OBJ"},
                                                                                     {"\x81", "NEWOBJ"},
                                                                                     {"\x82", "EXT1"},
                                                                                     {"P", "PERSID"},
                                                                                     {"Q", "BINPERSID"},
                                                                                     {"\x93", "STACK_GLOBAL"},
                                                                                     {"\x92", "NEWOBJ_EX"}}) {
    ExpectRefused(ReadOpcodes("N" + opcode + "."), "opcode " + name + " is refused");
  }
}

TEST(ReadPickle, RefusesWhatPyTorchDoesNotWrite) {
  ExpectRefused(ReadPickle(Bytes("of_protocol_4.pickle")), "its protocol is 4");
  ExpectRefused(ReadPickle(Bytes("of_bytes.pickle")), "opcode GLOBAL is refused");
  ExpectRefused(ReadPickle(Bytes("of_a_set.pickle")), "opcode GLOBAL is refused");
  ExpectRefused(ReadPickle(Bytes("of_a_long_integer.pickle")), "more than 64 bits");
  ExpectRefused(ReadPickle(Bytes("of_a_number_as_key.pickle")), "a key is not a string");
  ExpectRefused(ReadOpcodes("\xff"), "opcode 0xff is refused");
}

TEST(ReadPickle, EndsWithFilesThatAskForTooMuch) {
  ExpectRefused(ReadPickle(Bytes("of_a_trillion_values.pickle")), "too many values");
  ExpectRefused(ReadPickle(Bytes("of_a_circle.pickle")), "hold themselves");
  ExpectRefused(ReadOpcodes("N" + std::string(100000, '\x85') + "."), "nested too deeply");
}

TEST(ReadPickle, RefusesWhatMakesNoSense) {
  ExpectRefused(ReadPickle(""), "it ends in the middle");
  ExpectRefused(ReadOpcodes(""), "it ends in the middle");
  ExpectRefused(ReadOpcodes("."), "one value");
  ExpectRefused(ReadOpcodes("NN."), "one value");
  ExpectRefused(ReadOpcodes("(N."), "one value");
  ExpectRefused(ReadOpcodes("X\xff\xff\xff\xff"
                            "abc."),
                "middle of a string");
  ExpectRefused(ReadOpcodes("a."), "a value is missing");
  ExpectRefused(ReadOpcodes("NNa."), "belongs to no list");
  ExpectRefused(ReadOpcodes("](Ns."), "a value is missing");
  ExpectRefused(ReadOpcodes("]NNs."), "belongs to no dict");
  ExpectRefused(ReadOpcodes("e."), "a mark is missing");
  ExpectRefused(ReadOpcodes("}(Nu."), "a key has no value");
  ExpectRefused(ReadOpcodes("h\x05."), "value 5 was never remembered");
  ExpectRefused(ReadOpcodes("q\x05."), "nothing to remember");
}

TEST(ReadPickle, EveryPrefixOfADumpIsRefused) {
  const std::string bytes = Bytes("nccl_trace_rank_0");
  ASSERT_TRUE(ReadPickle(bytes).ok());
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(ReadPickle(bytes.substr(0, length)).ok()) << length;
}

TEST(ReadPickle, NoByteThatIsChangedDoesHarm) {
  const std::string bytes = Bytes("nccl_trace_rank_0");
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int value : {0x00, 0x28, 0x52, 0x71, 0x75, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      refused += !ReadPickle(changed).ok();
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace legoai::comm
