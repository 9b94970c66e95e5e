// Tables that scroll in themselves are reached by keyboard; the theme wraps them when a page is shown.
new MutationObserver(() => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) one.tabIndex = 0
}).observe(document.body, { childList: true, subtree: true })
// A page that is opened from a disk has no search: the theme asks for its index by HTTP.
if (location.protocol === "file:") document.querySelector("label.md-header__button[for=__search]")?.remove()
