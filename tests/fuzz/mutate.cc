#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <random>
#include <sstream>

namespace legoai::fuzz {
namespace {

// Edges of the types that parsers read numbers into, and numbers that are none.
const std::vector<std::string>& Numbers() {
  static const std::vector<std::string> numbers = Words(
      "0|-1|1|127|128|255|256|65535|65536|2147483647|2147483648|-2147483649|4294967296|9007199254740993|9223372036854775807|"
      "9223372036854775808|-9223372036854775808|-9223372036854775809|18446744073709551615|18446744073709551616|"
      "99999999999999999999999|0.1|-0.0|1e308|1e999|-1e-999|nan|inf|1_000|0x7fffffffffffffff|00|1.");
  return numbers;
}
constexpr uint64_t kWords[] = {0,
                               1,
                               7,
                               8,
                               0x7f,
                               0x80,
                               0xff,
                               0x7fff,
                               0xffff,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x100000000,
                               0x7fffffffffffffff,
                               0x8000000000000000,
                               0xffffffffffffffff,
                               0xfffffffffffffff8};

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& corpus, const std::vector<std::string>& tokens)
      : random_(seed), corpus_(corpus), tokens_(tokens), bytes_(Pick(corpus)) {}

  std::string Run() {
    for (uint64_t left = Below(2) ? 1 : 1 + Below(5); left > 0; --left) Change();
    if (bytes_.size() > kMostBytes) bytes_.resize(kMostBytes);
    return bytes_;
  }

 private:
  uint64_t Below(uint64_t end) { return end == 0 ? 0 : random_() % end; }
  size_t Place() { return Below(bytes_.size() + 1); }
  size_t Length(size_t from) { return Below(std::min<size_t>(bytes_.size() - from, Below(2) ? 8 : 512) + 1); }
  const std::string& Pick(const std::vector<std::string>& of) { return of[Below(of.size())]; }

  void Change() {
    switch (Below(12)) {
      case 0: return FlipBit();
      case 1: return SetByte();
      case 2: bytes_.resize(Place()); return;
      case 3: return Remove();
      case 4: return Repeat();
      case 5: return Splice();
      case 6: return Swap();
      case 7:
      case 8: return PutToken();
      case 9:
      case 10: return PutNumber();
      default: return PutWord();
    }
  }

  void FlipBit() {
    if (!bytes_.empty()) bytes_[Below(bytes_.size())] ^= static_cast<char>(1 << Below(8));
  }
  void SetByte() {
    if (!bytes_.empty())
      bytes_[Below(bytes_.size())] = static_cast<char>(Below(4) ? kWords[Below(std::size(kWords))] : random_());
  }
  void Remove() {
    const size_t from = Place();
    bytes_.erase(from, Length(from));
  }
  // Now and then so often that what nests, nests deep.
  void Repeat() {
    const size_t from = Place();
    const std::string piece = bytes_.substr(from, Length(from));
    const uint64_t times = Below(4) ? 1 : 1 + Below(2000);
    std::string many;
    for (uint64_t i = 0; i < times && many.size() < kMostBytes; ++i) many += piece;
    bytes_.insert(from, many);
  }
  void Splice() {
    const std::string& other = Pick(corpus_);
    const size_t from = Below(other.size() + 1);
    const std::string piece = other.substr(from, Below(2) ? Below(256) : other.size());
    const size_t at = Place();
    Below(2) ? void(bytes_.insert(at, piece)) : void(bytes_.replace(at, std::min(piece.size(), bytes_.size() - at), piece));
  }
  void Swap() {
    const size_t a = Place(), b = Place();
    const std::string first = bytes_.substr(a, Length(a)), second = bytes_.substr(b, Length(b));
    bytes_.replace(std::min(a, bytes_.size()), first.size(), second);
    bytes_.replace(std::min(b, bytes_.size()), second.size(), first);
  }
  void PutToken() {
    if (tokens_.empty()) return FlipBit();
    const std::string& token = Pick(tokens_);
    const size_t at = Place();
    // For another of the same words, if it is there.
    const std::string& old = Pick(tokens_);
    const size_t found = bytes_.find(old, at);
    if (!old.empty() && found != std::string::npos && Below(2)) return void(bytes_.replace(found, old.size(), token));
    std::string many;
    for (uint64_t times = Below(8) ? 1 : 1 + Below(2000); times > 0 && many.size() < kMostBytes; --times) many += token;
    bytes_.insert(at, many);
  }
  // For a number that is there, if there is one after the place.
  void PutNumber() {
    const std::string& number = Pick(Numbers());
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)); };
    const auto begin = std::find_if(bytes_.begin() + static_cast<std::ptrdiff_t>(Place()), bytes_.end(), digit);
    const auto end = std::find_if_not(begin, bytes_.end(), digit);
    bytes_.replace(begin, end, number);
  }
  // A length, an offset, a count of a binary format: 1 to 8 bytes, the least significant first.
  void PutWord() {
    const uint64_t word = kWords[Below(std::size(kWords))];
    const size_t size = size_t{1} << Below(4);
    if (bytes_.size() < size) return;
    const size_t at = Below(2) ? Below(bytes_.size() / size) * size : Below(bytes_.size() - size + 1);
    std::memcpy(bytes_.data() + at, &word, size);
  }

  std::mt19937_64 random_;
  const std::vector<std::string>&corpus_, &tokens_;
  std::string bytes_;
};

}  // namespace

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, '|');) words.push_back(word);
  return words;
}

std::string Mutate(uint64_t seed, const std::vector<std::string>& corpus, const std::vector<std::string>& tokens) {
  return Mutator(seed, corpus, tokens).Run();
}

}  // namespace legoai::fuzz
