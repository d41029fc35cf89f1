"""Chromium driver for tests of the conformance page."""

import json
import shutil

import pytest


def chromium():
    """Return a headless Chromium with its driver; skip the test if either is not installed."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("capability browser: no Chromium with its driver on this machine")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


LINK_TO_A_FAILURE = "#case=trace-gggg&implementation=late-1.0"
NETWORK = ("requestWillBeSent", "loadingFailed")


class Browser:
    """Page in Chromium."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, file, fragment="#all", width=1280, height=900, **media):
        """Reload a file in a window of this size, by default with all cases. *media* has features such as the color scheme."""
        values = {"prefers_color_scheme": "light", "prefers_reduced_motion": "reduce", **media}
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]
        self.driver.get("about:blank")
        self.send_command("Emulation.setEmulatedMedia", media="", features=features)
        self.send_command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.driver.get(file.as_uri() + fragment)

    def show_once(self, file):
        """Load a file unless it is loaded, for tests that do not change the page."""
        if self.driver.current_url.partition("#")[0] != file.as_uri():
            self.show(file)

    def send_command(self, command, **arguments):
        """Send a command of the Chrome DevTools Protocol."""
        return self.driver.execute_cdp_cmd(command, arguments)

    def eval(self, expression, *arguments):
        """Return the value of an expression in the page. `$` and `$$` find elements, and `texts` returns their texts."""
        finders = "const $ = (css) => document.querySelector(css), $$ = (css) => [...document.querySelectorAll(css)];"
        texts = "const texts = (css) => $$(css).map((node) => node.textContent);"
        return self.driver.execute_script(f"{finders} {texts} return {expression}", *arguments)

    def open(self, case, implementation):
        """Open the details of a result, or of a case or an implementation if the other argument is None; return their text."""
        return self.eval(
            "open({case: arguments[0], implementation: arguments[1]}) ?? $('dialog').textContent", case, implementation
        )

    def click(self, css):
        """Scroll to the first matching element and click it."""
        element = self.eval("$(arguments[0])", css)
        self.eval("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        element.click()

    def choose(self, css, value):
        """Set a form field, with the events of user input."""
        change = "['input', 'change'].forEach((name) => field.dispatchEvent(new Event(name, {bubbles: true})))"
        self.eval(f"((field) => {{ field.value = arguments[1]; {change}; }})($(arguments[0]))", css, value)

    def press(self, *keys):
        """Press keys, or chords such as "control+end", in the focused element."""
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            chord = [getattr(Keys, part.upper(), part) for part in key.split("+")]
            self.driver.switch_to.active_element.send_keys(*chord)

    def wait_until(self, expression):
        """Wait at most five seconds until an expression is true."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.eval(expression), expression)

    def wait_until_closed(self):
        """Wait until the details are closed; return the label of the focused element."""
        self.wait_until("!$('dialog').open && !Object.keys(opened).length")
        return self.focused()

    def focused(self):
        """Return the label of the focused element."""
        return self.eval("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")

    def shown_cases(self):
        """Return the cases that the matrix shows."""
        return self.eval("$$('tr.case th button').map((button) => button.dataset.case)")

    def discard_logs(self):
        """Discard all messages and requests, so that `errors` and `requests` return later ones only."""
        self.errors()
        self.requests()

    def errors(self):
        """Return the messages of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Return the addresses requested since the last call, except those that the page's policy blocked."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        events_of = {name: [params["params"] for params in events if params["method"] == f"Network.{name}"] for name in NETWORK}
        blocked = {params["requestId"] for params in events_of["loadingFailed"] if params.get("blockedReason") == "csp"}
        return [params["request"]["url"] for params in events_of["requestWillBeSent"] if params["requestId"] not in blocked]


def cell(case, implementation):
    """Return the CSS selector of a cell."""
    return f'td [data-case="{case}"][data-implementation="{implementation}"]'


# For each visible text: its contrast ratio with the least favorable background color, and its element.
CONTRASTS = r"""(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colors) => {
    for (const color of colors) {
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
    }
    const linear = (part) => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const behind = (node) => {
    if (!node) return [["white"]];
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    const stripes = backgroundImage.match(/(rgba?|color)\([^)]*\)/g) ?? [];
    const layers = [[backgroundColor], ...stripes.map((stripe) => [backgroundColor, stripe])];
    return behind(node.parentElement).flatMap((below) => layers.map((own) => [...below, ...own]));
  };
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector("dialog[open]") ?? document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || parent.closest(".visually-hidden, script, style, option")) continue;
    const { fill, color } = getComputedStyle(parent);
    for (const layers of behind(parent)) {
      const [low, high] = [paint(layers), paint([...layers, parent instanceof SVGElement ? fill : color])].sort((a, b) => a - b);
      texts.push([high / low, `${parent.tagName}.${parent.getAttribute("class")}: ${node.data.slice(0, 30)}`]);
    }
  }
  return texts;
})()"""
