#include "core/flight/pickle_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::comm {
namespace {

using Json = nlohmann::ordered_json;

// What is shared by reference in a file is copied for each use; a small file could ask for any amount of that. Each use in a dump
// takes a byte of the file at least, unless lists that hold lists are shared.
constexpr int64_t kMostValues = 5'000'000, kFewValues = 100'000;
constexpr int kDeepest = 64;

struct Value {
  enum class Kind { kPlain, kList, kTuple, kDict };
  Kind kind = Kind::kPlain;
  Json plain;
  std::vector<Value*> items;  // of a dict: key, value, key, value ...
};

// Names of Python's pickletools, of what is refused.
const char* NameOf(uint8_t opcode) {
  static const auto& names = *new std::unordered_map<uint8_t, const char*>{{'0', "POP"},
                                                                           {'1', "POP_MARK"},
                                                                           {'2', "DUP"},
                                                                           {'B', "BINBYTES"},
                                                                           {'C', "SHORT_BINBYTES"},
                                                                           {'F', "FLOAT"},
                                                                           {'I', "INT"},
                                                                           {'L', "LONG"},
                                                                           {'P', "PERSID"},
                                                                           {'Q', "BINPERSID"},
                                                                           {'R', "REDUCE"},
                                                                           {'S', "STRING"},
                                                                           {'T', "BINSTRING"},
                                                                           {'U', "SHORT_BINSTRING"},
                                                                           {'V', "UNICODE"},
                                                                           {'b', "BUILD"},
                                                                           {'c', "GLOBAL"},
                                                                           {'d', "DICT"},
                                                                           {'g', "GET"},
                                                                           {'i', "INST"},
                                                                           {'l', "LIST"},
                                                                           {'o', "OBJ"},
                                                                           {'p', "PUT"},
                                                                           {0x81, "NEWOBJ"},
                                                                           {0x82, "EXT1"},
                                                                           {0x83, "EXT2"},
                                                                           {0x84, "EXT4"},
                                                                           {0x8b, "LONG4"},
                                                                           {0x8c, "SHORT_BINUNICODE"},
                                                                           {0x8d, "BINUNICODE8"},
                                                                           {0x8e, "BINBYTES8"},
                                                                           {0x8f, "EMPTY_SET"},
                                                                           {0x90, "ADDITEMS"},
                                                                           {0x91, "FROZENSET"},
                                                                           {0x92, "NEWOBJ_EX"},
                                                                           {0x93, "STACK_GLOBAL"},
                                                                           {0x94, "MEMOIZE"},
                                                                           {0x95, "FRAME"},
                                                                           {0x96, "BYTEARRAY8"},
                                                                           {0x97, "NEXT_BUFFER"},
                                                                           {0x98, "READONLY_BUFFER"}};
  const auto found = names.find(opcode);
  return found == names.end() ? nullptr : found->second;
}

class Reader {
 public:
  Reader(const std::string& bytes, const std::string& left_out) : bytes_(bytes), left_out_(left_out) {}

  absl::StatusOr<Json> Read() {
    while (error_.ok() && !stopped_) Step();
    if (error_.ok() && (stack_.size() != 1 || !marks_.empty())) Fail("it does not end with one value");
    Json result;
    int64_t left = std::min(kMostValues, kFewValues + static_cast<int64_t>(bytes_.size()));
    if (error_.ok()) result = ToJson(*stack_[0], 0, &left);
    if (!error_.ok()) return error_;
    return result;
  }

 private:
  void Fail(const std::string& why) {
    if (error_.ok()) error_ = FieldError("pickle", absl::StrCat("byte ", at_), why);
  }

  // The next `count` bytes; zeros after the end.
  const char* Take(size_t count) {
    static const char zeros[8] = {};
    if (count > bytes_.size() - at_) {
      Fail("it ends in the middle of a value");
      return zeros;
    }
    at_ += count;
    return bytes_.data() + at_ - count;
  }

  uint64_t Unsigned(int bytes) {
    const char* from = Take(bytes);
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(from[i]);
    return value;
  }

  // Two's complement of so many bytes, least significant first.
  int64_t Signed(int bytes) {
    if (bytes == 0) return 0;
    const int unused = 64 - 8 * bytes;
    return static_cast<int64_t>(Unsigned(bytes) << unused) >> unused;
  }

  double BigEndianDouble() {
    const char* from = Take(8);
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<uint8_t>(from[i]);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  void Push(Json plain) {
    values_.push_back({Value::Kind::kPlain, std::move(plain), {}});
    stack_.push_back(&values_.back());
  }
  void PushEmpty(Value::Kind kind) {
    values_.push_back({kind, {}, {}});
    stack_.push_back(&values_.back());
  }

  void PushString() {
    const uint64_t length = Unsigned(4);
    if (length > bytes_.size() - at_) return Fail("it ends in the middle of a string");
    Push(ToUtf8({Take(length), length}));
  }

  void PushLong() {
    const int length = static_cast<int>(Unsigned(1));
    if (length > 8) return Fail("an integer has more than 64 bits");
    Push(Signed(length));
  }

  // What was pushed last: `count` values, or those since the mark.
  std::vector<Value*> Pop(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor + count) {
      Fail("a value is missing");
      return {};
    }
    std::vector<Value*> popped(stack_.end() - count, stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }

  std::vector<Value*> PopToMark() {
    if (marks_.empty()) {
      Fail("a mark is missing");
      return {};
    }
    std::vector<Value*> popped = Pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }

  void PushTuple(std::vector<Value*> items) {
    PushEmpty(Value::Kind::kTuple);
    stack_.back()->items = std::move(items);
  }

  void Extend(Value::Kind kind, std::vector<Value*> items) {
    if (stack_.empty() || stack_.back()->kind != kind) {
      return Fail(kind == Value::Kind::kList ? "an item belongs to no list" : "an item belongs to no dict");
    }
    if (kind == Value::Kind::kDict) {
      if (items.size() % 2 != 0) return Fail("a key has no value");
      for (size_t i = 0; i < items.size(); i += 2) {
        if (!items[i]->plain.is_string()) return Fail("a key is not a string");
      }
    }
    auto& all = stack_.back()->items;
    all.insert(all.end(), items.begin(), items.end());
  }

  void Put(uint64_t index) {
    if (stack_.empty()) return Fail("there is nothing to remember");
    memo_[index] = stack_.back();
  }

  void Get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) return Fail(absl::StrCat("value ", index, " was never remembered"));
    stack_.push_back(found->second);
  }

  void Protocol() {
    const uint64_t protocol = Unsigned(1);
    if (protocol != 2) Fail(absl::StrCat("its protocol is ", protocol, "; PyTorch's flight recorder writes protocol 2"));
  }

  void Refuse(uint8_t opcode) {
    --at_;
    const char* name = NameOf(opcode);
    Fail(absl::StrCat("opcode ", name != nullptr ? name : absl::StrFormat("0x%02x", opcode),
                      " is refused: a flight recorder's dump is made of dicts, lists, tuples, strings, numbers and None"));
  }

  void Step() {
    const auto opcode = static_cast<uint8_t>(Unsigned(1));
    if (!error_.ok()) return;
    switch (opcode) {
      case 0x80: return Protocol();
      case '.': stopped_ = true; return;
      case 'N': return Push(nullptr);
      case 0x88: return Push(true);
      case 0x89: return Push(false);
      case 'K': return Push(static_cast<int64_t>(Unsigned(1)));
      case 'M': return Push(static_cast<int64_t>(Unsigned(2)));
      case 'J': return Push(Signed(4));
      case 0x8a: return PushLong();
      case 'G': return Push(BigEndianDouble());
      case 'X': return PushString();
      case '(': return marks_.push_back(stack_.size());
      case ']': return PushEmpty(Value::Kind::kList);
      case '}': return PushEmpty(Value::Kind::kDict);
      case ')': return PushEmpty(Value::Kind::kTuple);
      case 0x85: return PushTuple(Pop(1));
      case 0x86: return PushTuple(Pop(2));
      case 0x87: return PushTuple(Pop(3));
      case 't': return PushTuple(PopToMark());
      case 'a': return Extend(Value::Kind::kList, Pop(1));
      case 'e': return Extend(Value::Kind::kList, PopToMark());
      case 's': return Extend(Value::Kind::kDict, Pop(2));
      case 'u': return Extend(Value::Kind::kDict, PopToMark());
      case 'q': return Put(Unsigned(1));
      case 'r': return Put(Unsigned(4));
      case 'h': return Get(Unsigned(1));
      case 'j': return Get(Unsigned(4));
      default: return Refuse(opcode);
    }
  }

  Json ToJson(const Value& value, int depth, int64_t* left) {
    if (depth > kDeepest) Fail("values are nested too deeply, or hold themselves");
    if (--*left < 0) Fail("it holds too many values");
    if (!error_.ok()) return nullptr;
    if (value.kind == Value::Kind::kPlain) return value.plain;
    Json json = value.kind == Value::Kind::kDict ? Json::object() : Json::array();
    for (size_t i = 0; i < value.items.size() && error_.ok(); ++i) {
      if (value.kind == Value::Kind::kDict) {
        const std::string key = value.items[i++]->plain.get<std::string>();
        if (key.empty() || key != left_out_) json[key] = ToJson(*value.items[i], depth + 1, left);
      } else {
        json.push_back(ToJson(*value.items[i], depth + 1, left));
      }
    }
    return json;
  }

  const std::string &bytes_, &left_out_;
  size_t at_ = 0;
  bool stopped_ = false;
  absl::Status error_;
  std::deque<Value> values_;  // all of them: they may hold one another in circles
  std::vector<Value*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Value*> memo_;
};

}  // namespace

absl::StatusOr<Json> ReadPickle(const std::string& bytes, const std::string& left_out) { return Reader(bytes, left_out).Read(); }

}  // namespace legoai::comm
