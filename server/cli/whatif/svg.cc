#include "server/cli/whatif/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace legoai::cli::svg {

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string TextAt(double x, double y, const std::string& text, const char* anchor, const char* color, const char* more) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s>%s</text>\n", x, y, anchor, color, more,
                         Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* color, const char* more) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n", x1, y1, x2, y2, color,
                         more);
}

std::string Box(double x, double y, double width, double height, const char* color, const std::string& title, const char* more) {
  const std::string inner = title.empty() ? "" : absl::StrCat("<title>", Escaped(title), "</title>");
  return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s>%s</rect>\n", x, y, width,
                         height, color, more, inner);
}

std::string Document(double width, double height, const std::string& title, const std::string& body) {
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                      "viewBox=\"0 0 %.0f %.0f\" role=\"img\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" "
                      "font-size=\"12\">\n",
                      width, height, width, height),
      "<title>", Escaped(title), "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      TextAt(16, 24, title, "start", kInk, " font-weight=\"600\" font-size=\"13\""), body, "</svg>\n");
}

}  // namespace legoai::cli::svg
