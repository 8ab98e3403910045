// FlightDump as JSON with PyTorch's field names, and from PyTorch's pickles.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/flight/flight_ring.h"
#include "core/flight/pickle_reader.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::comm {
namespace {

using Json = nlohmann::ordered_json;

Json EntryToJson(const v1::FlightEntry& entry) {
  auto sizes = [](const auto& values) {
    Json tensors = Json::array({Json::array()});
    for (int64_t value : values) value < 0 ? tensors.push_back(Json::array()) : tensors.back().push_back(value);
    return tensors;
  };
  auto time = [](int64_t ns) { return ns == 0 ? Json(nullptr) : Json(ns); };
  Json json;
  json["record_id"] = entry.record_id();
  json["pg_id"] = entry.pg_id();
  json["process_group"] = {absl::StrCat(entry.pg_id()), entry.process_group()};
  json["collective_seq_id"] = entry.collective_seq_id();
  json["p2p_seq_id"] = entry.p2p_seq_id();
  json["op_id"] = entry.op_id();
  json["profiling_name"] = entry.profiling_name();
  json["time_created_ns"] = entry.time_created_ns();
  json["time_discovered_started_ns"] = time(entry.time_started_ns());
  json["time_discovered_completed_ns"] = time(entry.time_completed_ns());
  json["input_sizes"] = sizes(entry.input_sizes());
  json["input_dtypes"] = {entry.dtype()};
  json["output_sizes"] = sizes(entry.output_sizes());
  json["output_dtypes"] = {entry.dtype()};
  json["bytes"] = entry.bytes();  // PyTorch's dumps have none; a ring does not keep all dimensions to tell it from
  json["state"] = entry.state();
  json["retired"] = entry.state() == "completed";
  json["timeout_ms"] = entry.timeout_ms();
  json["is_p2p"] = entry.is_p2p();
  if (entry.is_p2p()) json["peer"] = entry.peer();
  json["frames"] = Json::array();
  return json;
}

int64_t Integer(const Json& json, const char* key) {
  auto it = json.find(key);
  return it == json.end() || !it->is_number_integer() ? 0 : it->get<int64_t>();
}

std::string Text(const Json& json, const char* key) {
  auto it = json.find(key);
  return it == json.end() ? "" : it->get<std::string>();
}

// The number after `arrow` in "send 1->2" or "recv 2<-1": the peer of PyTorch's messages; -1 if there is none.
int64_t PeerFromName(const std::string& name) {
  const size_t arrow = std::max(name.find("->") + 2, name.find("<-") + 2);  // npos + 2 is 1
  int64_t peer = -1;
  return arrow > 1 && absl::SimpleAtoi(name.substr(arrow), &peer) ? peer : -1;
}

// "Float"; "Float,Half" of tensors that differ; "Float->Half" where outputs differ from inputs.
std::string DtypeText(const Json& json) {
  auto text = [&](const char* key) {
    std::vector<std::string> different;
    for (const Json& dtype : json.value(key, Json::array())) {
      if (std::find(different.begin(), different.end(), dtype) == different.end()) different.push_back(dtype.get<std::string>());
    }
    return absl::StrJoin(different, ",");
  };
  const std::string inputs = text("input_dtypes"), outputs = text("output_dtypes");
  return inputs.empty() ? outputs : outputs.empty() || outputs == inputs ? inputs : absl::StrCat(inputs, "->", outputs);
}

// Lists of sizes, one of each tensor: one after another, with -1 between them.
template <class Sizes>
void SizesFromJson(const Json& json, const char* key, Sizes* sizes) {
  const Json tensors = json.value(key, Json::array());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) sizes->Add(-1);
    for (const Json& size : tensors[i]) {
      if (size.get<int64_t>() < 0) throw std::out_of_range("a size is below zero");
      sizes->Add(size.get<int64_t>());
    }
  }
}

double ElementBytes(const std::string& dtype) {
  static const auto* const bytes = new std::map<std::string, double>{
      {"Byte", 1},        {"Char", 1},     {"Bool", 1},         {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1},
      {"Half", 2},        {"BFloat16", 2}, {"Short", 2},        {"Int", 4},           {"Float", 4},
      {"ComplexHalf", 4}, {"Long", 8},     {"ComplexFloat", 8}, {"Double", 8},        {"ComplexDouble", 16}};
  const auto found = bytes->find(dtype);
  return found == bytes->end() ? 0 : found->second;
}

// Of dumps that do not say it: what the tensors hold that go in, or, where none does, those that come out.
int64_t BytesOfTensors(const Json& json) {
  double bytes = 0;
  for (const std::string side : {"input", "output"}) {
    const Json tensors = json.value(side + "_sizes", Json::array()), dtypes = json.value(side + "_dtypes", Json::array());
    for (size_t i = 0; i < std::min(tensors.size(), dtypes.size()); ++i) {
      double elements = 1;
      for (const Json& size : tensors[i]) elements *= static_cast<double>(size.get<int64_t>());
      bytes += elements * ElementBytes(dtypes[i].get<std::string>());
    }
    if (bytes > 0) break;
  }
  constexpr double kMost = 9e18;  // beyond, the dump is damaged
  return bytes > 0 && bytes < kMost ? static_cast<int64_t>(bytes) : 0;
}

v1::FlightEntry EntryFromJson(const Json& json) {
  v1::FlightEntry entry;
  entry.set_record_id(Integer(json, "record_id"));
  entry.set_pg_id(Integer(json, "pg_id"));
  entry.set_collective_seq_id(Integer(json, "collective_seq_id"));
  entry.set_p2p_seq_id(Integer(json, "p2p_seq_id"));
  entry.set_op_id(Integer(json, "op_id"));
  entry.set_profiling_name(Text(json, "profiling_name"));
  entry.set_time_created_ns(Integer(json, "time_created_ns"));
  entry.set_time_started_ns(Integer(json, "time_discovered_started_ns"));
  entry.set_time_completed_ns(Integer(json, "time_discovered_completed_ns"));
  entry.set_state(Text(json, "state"));
  entry.set_timeout_ms(Integer(json, "timeout_ms"));
  const int64_t peer = PeerFromName(entry.profiling_name());
  entry.set_is_p2p(json.value("is_p2p", peer >= 0));
  entry.set_peer(!entry.is_p2p() ? -1 : json.contains("peer") ? Integer(json, "peer") : peer);
  SizesFromJson(json, "input_sizes", entry.mutable_input_sizes());
  SizesFromJson(json, "output_sizes", entry.mutable_output_sizes());
  entry.set_dtype(DtypeText(json));
  entry.set_bytes(json.contains("bytes") ? Integer(json, "bytes") : BytesOfTensors(json));
  return entry;
}

// The first of an entry's "process_group", a pair: the key of pg_config. The second is the description.
std::pair<std::string, std::string> GroupOfEntry(const Json& json) {
  auto it = json.find("process_group");
  if (it == json.end() || !it->is_array() || it->size() != 2) return {};
  return {(*it)[0].get<std::string>(), (*it)[1].get<std::string>()};
}

void RanksFromJson(const Json& config, v1::FlightGroup* group) {
  const Json ranks = config.at("ranks").is_string() ? Json::parse(config.at("ranks").get<std::string>()) : config.at("ranks");
  for (const Json& rank : ranks) {
    const int64_t number = rank.get<int64_t>();
    if (number < 0 || number >= kMostFlightRanks) throw std::out_of_range("a group has an invalid rank");
    group->add_ranks(number);
  }
}

Json ConditionToJson(const v1::RankCondition& condition) {
  return {{"fault", condition.fault()},
          {"text", condition.text()},
          {"process_state", condition.process_state()},
          {"silent_seconds", condition.silent_seconds()},
          {"phase", condition.phase()},
          {"step", condition.step()}};
}

void ReadCondition(const Json& json, v1::RankCondition* condition) {
  condition->set_fault(Text(json, "fault"));
  condition->set_text(Text(json, "text"));
  condition->set_process_state(Text(json, "process_state"));
  const double silent_seconds = json.value("silent_seconds", 0.0);
  if (!std::isfinite(silent_seconds)) throw std::out_of_range("silent_seconds is no number");
  condition->set_silent_seconds(silent_seconds);
  condition->set_phase(Text(json, "phase"));
  condition->set_step(Integer(json, "step"));
}

// LegoAI's own: groups have numbers.
void ReadOwn(const Json& json, v1::FlightDump* dump) {
  dump->set_rank(Integer(json, "rank"));
  dump->set_world_size(Integer(json, "world_size"));
  dump->set_reason(Text(json, "reason"));
  if (json.contains("condition")) ReadCondition(json.at("condition"), dump->mutable_condition());
  std::set<int64_t> ids;
  for (const auto& [id, config] : json.at("pg_config").items()) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || !ids.insert(number).second)
      throw std::out_of_range("a group's number is invalid or used twice");
    auto* group = dump->add_groups();
    group->set_pg_id(number);
    group->set_name(config.value("desc", ""));
    RanksFromJson(config, group);
  }
  for (const Json& entry : json.at("entries")) {
    *dump->add_entries() = EntryFromJson(entry);
    dump->mutable_entries()->rbegin()->set_process_group(GroupOfEntry(entry).second);
  }
}

// PyTorch's: groups have names, the same on all ranks; their numbers differ from rank to rank and are given anew here.
void ReadPyTorch(const Json& json, v1::FlightDump* dump) {
  auto name_of = [](const std::string& key, const std::string& description) {
    return description.empty() || description == "undefined" ? key : absl::StrCat(key, ":", description);
  };
  std::map<std::string, int64_t> number;
  dump->set_rank(-1);
  for (const auto& [key, config] : json.at("pg_config").items()) {
    auto* group = dump->add_groups();
    group->set_pg_id(number.emplace(key, static_cast<int64_t>(number.size())).first->second);
    group->set_name(name_of(key, config.value("desc", "")));
    RanksFromJson(config, group);
    for (int64_t rank : group->ranks()) dump->set_world_size(std::max(dump->world_size(), rank + 1));
  }
  for (const Json& json_entry : json.value("entries", Json::array())) {
    auto* entry = dump->add_entries();
    *entry = EntryFromJson(json_entry);
    const auto [key, description] = GroupOfEntry(json_entry);
    entry->set_process_group(name_of(key, description));
    entry->set_pg_id(number.emplace(key, static_cast<int64_t>(number.size())).first->second);
  }
}

v1::FlightDump DumpFromJson(const Json& json) {
  v1::FlightDump dump;
  dump.set_version(json.at("version").get<std::string>());
  json.contains("rank") ? ReadOwn(json, &dump) : ReadPyTorch(json, &dump);
  return dump;
}

}  // namespace

std::string FlightDumpToJson(const v1::FlightDump& dump) {
  Json json;
  json["version"] = dump.version();
  json["rank"] = dump.rank();
  json["world_size"] = dump.world_size();
  json["reason"] = dump.reason();
  if (dump.has_condition()) json["condition"] = ConditionToJson(dump.condition());
  json["pg_config"] = Json::object();
  for (const auto& group : dump.groups()) {
    json["pg_config"][absl::StrCat(group.pg_id())] = {{"name", absl::StrCat(group.pg_id())},
                                                      {"desc", group.name()},
                                                      {"ranks", absl::StrCat("[", absl::StrJoin(group.ranks(), ", "), "]")}};
  }
  json["entries"] = Json::array();
  for (const auto& entry : dump.entries()) json["entries"].push_back(EntryToJson(entry));
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<v1::FlightDump> FlightDumpFromJson(const std::string& text) {
  const auto refuse = [&text](std::string_view why) {
    return FieldError("flight dump", CutText(text, 40), "not a flight recorder's JSON: " + CutText(why, 200));
  };
  const auto tree = ParseJsonTree(text);
  if (!tree.ok()) return refuse({tree.status().message().data(), tree.status().message().size()});
  try {
    return DumpFromJson(*tree);
  } catch (const std::exception& e) {  // nlohmann's and the standard library's exceptions end here
    return refuse(e.what());
  }
}

absl::StatusOr<v1::FlightDump> FlightDumpFromPickle(const std::string& bytes) {
  ASSIGN_OR_RETURN(const auto values, ReadPickle(bytes, /*left_out=*/"frames"));  // stack traces, by far the most of a dump
  try {
    return DumpFromJson(values);
  } catch (const std::exception& e) {
    return FieldError("flight dump", "a pickle", absl::StrCat("not a flight recorder's: ", e.what()));
  }
}

}  // namespace legoai::comm
